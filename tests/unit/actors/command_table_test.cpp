#include "actors/command_table.hpp"

#include <catch2/catch.hpp>

#include "base/text.hpp"

using namespace dsec::actors;
namespace backends = dsec::backends;

namespace {

backends::exec_spec spec(const std::string& id) {
  backends::exec_spec s;
  s.id = id;
  s.argv = {"true"};
  return s;
}

backends::command_exited exited(const std::string& id, std::uint64_t out = 0) {
  backends::command_exited e;
  e.id = id;
  e.stdout_total = out;
  return e;
}

void run(command_table& t, const std::string& id, std::uint64_t out = 0) {
  REQUIRE(t.add(spec(id)));
  REQUIRE(t.exited(exited(id, out)));
}

}  // namespace

TEST_CASE("a command goes from starting to running to ended") {
  command_table t;
  REQUIRE(t.add(spec("a")));
  CHECK(t.find("a")->now == command::state::starting);
  CHECK(t.live() == 1);
  CHECK(t.started({"a", {}}));
  CHECK(t.find("a")->now == command::state::running);
  CHECK(t.exited(exited("a")));
  CHECK(t.find("a")->over());
  CHECK(t.live() == 0);
}

TEST_CASE("the first end of a command is the only one") {
  command_table t;
  run(t, "a");
  CHECK_FALSE(t.exited(exited("a")));
  CHECK_FALSE(t.failed({"a", {}}));
  CHECK_FALSE(t.started({"a", {}}));
  CHECK_FALSE(t.exited(exited("stranger")));
  CHECK(t.live() == 0);
}

TEST_CASE("a withdrawn command was never there") {
  command_table t;
  REQUIRE(t.add(spec("a")));
  t.withdraw("a");
  CHECK(t.find("a") == nullptr);
  CHECK_FALSE(t.used_up("a"));
  CHECK(t.live() == 0);
}

TEST_CASE("old results go, but their ids stay used up") {
  command_table t;
  const auto n = command_table::max_results + command_table::evict_batch;
  for (std::size_t i = 0; i < n; ++i) run(t, "c" + std::to_string(i));
  const auto gone = t.evict();
  CHECK(gone.size() == command_table::evict_batch);
  CHECK(gone.front() == "c0");
  CHECK(t.find("c0") == nullptr);
  CHECK(t.used_up("c0"));
  CHECK(t.find("c" + std::to_string(n - 1)) != nullptr);
  CHECK(t.all().size() == command_table::max_results);
}

TEST_CASE("kept output is bounded in bytes, the newest result stays") {
  command_table t;
  auto huge = spec("a");
  huge.output_cap = command_table::max_kept_bytes;
  REQUIRE(t.add(huge));
  REQUIRE(t.exited(exited("a", command_table::max_kept_bytes)));
  CHECK(t.evict().empty());
  huge.id = "b";
  REQUIRE(t.add(huge));
  REQUIRE(t.exited(exited("b", command_table::max_kept_bytes)));
  CHECK(t.evict() == std::vector<std::string>{"a"});
  CHECK(t.find("b") != nullptr);
}

TEST_CASE("commands are listed in the order in which they were started") {
  command_table t;
  for (const auto* id : {"z", "a", "m"}) REQUIRE(t.add(spec(id)));
  REQUIRE(t.exited(exited("a")));
  std::vector<std::string> ids;
  for (const auto* c : t.all()) ids.push_back(c->id);
  CHECK(ids == std::vector<std::string>{"z", "a", "m"});
}

TEST_CASE("arguments are kept for display only so far") {
  command_table t;
  auto s = spec("a");
  s.argv = {"echo", std::string(100'000, 'x'), "lost"};
  REQUIRE(t.add(s));
  const auto& shown = t.find("a")->argv;
  REQUIRE(shown.size() == 2);
  CHECK(shown[0].size() + shown[1].size() == command_table::max_shown_argv);
}

TEST_CASE("arguments are cut between characters and shown as UTF-8") {
  command_table t;
  auto long_script = spec("cjk");
  long_script.argv = {"sh", "-c", "x"};
  while (long_script.argv[2].size() < 6000) long_script.argv[2] += "\xE6\xBC\xA2";
  REQUIRE(t.add(long_script));
  const auto& argv = t.find("cjk")->argv;
  REQUIRE(argv.size() == 3);
  CHECK(dsec::base::is_utf8(argv[2]));
  CHECK(long_script.argv[2].starts_with(argv[2]));
  CHECK(argv[2].size() <= command_table::max_shown_argv);
  CHECK(argv[2].size() > command_table::max_shown_argv - 16);

  auto bytes = spec("bytes");
  bytes.argv = {"echo", "\xFF\xFEz"};
  REQUIRE(t.add(bytes));
  CHECK(t.find("bytes")->argv[1] == "\xEF\xBF\xBD\xEF\xBF\xBDz");
}

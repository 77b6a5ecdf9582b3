// The command log: what is read back, after whatever may have happened to the file.
#include "backends/container/command_log.hpp"

#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>
#include <thread>

#include "backends/sys/file.hpp"
#include "backends/sys/temp_dir.hpp"
#include "base/ids.hpp"

using namespace dsec;
using namespace dsec::container;
using backends::known_command;
using base::errc;

namespace {

begun_record begun(const std::string& id) {
  begun_record r;
  r.id = id;
  r.argv = {"/bin/echo", "hello"};
  r.cwd = "/tmp";
  r.user = "joe";
  r.output_cap = 5000;
  r.spool_cap = 6000;
  return r;
}

exited_record exited(const std::string& id, int code = 0) {
  exited_record r;
  r.event.id = id;
  r.event.exit_code = code;
  r.event.duration = std::chrono::microseconds(1234);
  r.event.started = std::chrono::system_clock::time_point(std::chrono::seconds(1'700'000'000));
  r.event.stdout_total = 77;
  r.event.stderr_total = 88;
  return r;
}

exited_record wrote(const std::string& id, std::uint64_t size) {
  auto r = exited(id);
  r.written_size = size;
  return r;
}

struct logged {
  sys::temp_dir dir = *sys::temp_dir::make("dsec-log-test");
  std::filesystem::path file = dir.path() / "commands.log";
  command_log log{dir.path()};

  void begin(const std::string& id) { REQUIRE(log.begin(begun(id))); }
  /// As the next dsecd reads it.
  [[nodiscard]] command_log::contents next() const {
    auto all = command_log(dir.path()).load();
    REQUIRE(all);
    return *std::move(all);
  }
  [[nodiscard]] std::vector<std::string> next_ids() const {
    std::vector<std::string> ids;
    for (const auto& c : next().commands) ids.push_back(c.known.id);
    return ids;
  }
};

using ids = std::vector<std::string>;

}  // namespace

TEST_CASE("commands are read back in order, with all that was written of them") {
  logged l;
  l.begin("a");
  l.begin("b");
  l.begin("c");
  l.log.note(exited("b", 3));
  l.log.note(backends::command_failed{"a", {errc::exec_failed, "cannot run it", ENOENT}});
  const auto all = l.next();
  REQUIRE(all.commands.size() == 3);
  CHECK(all.used_up.empty());
  const auto& a = all.commands[0];
  CHECK(a.known.id == "a");
  CHECK(a.known.argv == ids{"/bin/echo", "hello"});
  CHECK(a.cwd == "/tmp");
  CHECK(a.user == "joe");
  CHECK(a.known.output_cap == 5000);
  CHECK(a.spool_cap == 6000);
  const auto& failed = std::get<backends::command_failed>(a.known.end);
  CHECK(failed.why.code == errc::exec_failed);
  CHECK(failed.why.message == "cannot run it");
  CHECK(failed.why.sys_errno == ENOENT);
  const auto& end = std::get<backends::command_exited>(all.commands[1].known.end);
  CHECK(end.id == "b");
  CHECK(end.exit_code == 3);
  CHECK(end.duration == std::chrono::microseconds(1234));
  CHECK(end.started == exited("b").event.started);
  CHECK(all.commands[1].known.started == end.started);
  CHECK(end.stdout_total == 77);
  CHECK(end.stderr_total == 88);
  CHECK(std::holds_alternative<known_command::pending>(all.commands[2].known.end));
}

TEST_CASE("long arguments are cut for display, and many") {
  backends::exec_spec spec;
  spec.id = "long";
  spec.argv = {std::string(3000, 'x'), std::string(3000, 'y'), "z"};
  const auto cut = describe(spec, 4096);
  REQUIRE(cut.argv.size() == 2);
  CHECK(cut.argv[0] == spec.argv[0]);
  CHECK(cut.argv[1] == std::string(1096, 'y'));
  spec.argv.assign(100'000, "");
  CHECK(describe(spec, 4096).argv.size() == 1024);
  CHECK(encode(describe(spec, 4096)).size() < 64 * 1024);
}

TEST_CASE("a log that is not there is empty") {
  const logged l;
  CHECK(l.next_ids().empty());
  CHECK_FALSE(std::filesystem::exists(l.file));
  CHECK(command_log::prepare(l.dir.path()));
  CHECK(l.next_ids().empty());
}

TEST_CASE("a last record that is torn anywhere is cut off, and the log goes on behind it") {
  logged l;
  l.begin("a");
  const auto whole = std::filesystem::file_size(l.file);
  l.begin("torn");
  const auto bytes = *sys::read_file(l.file);
  for (auto size = whole; size < bytes.size(); ++size) {
    std::ofstream(l.file, std::ios::binary | std::ios::trunc) << bytes.substr(0, size);
    REQUIRE(l.next_ids() == ids{"a"});
    REQUIRE(std::filesystem::file_size(l.file) == whole);
  }
  command_log next(l.dir.path());
  REQUIRE(next.load());
  REQUIRE(next.begin(begun("b")));
  CHECK(l.next_ids() == ids{"a", "b"});
}

TEST_CASE("a record that cannot be read costs no other") {
  logged l;
  l.begin("a");
  const auto first = std::filesystem::file_size(l.file);
  l.begin("b");
  const auto second = std::filesystem::file_size(l.file);
  l.begin("c");
  const auto bytes = *sys::read_file(l.file);
  for (auto at = first; at < second; at += 7) {
    auto damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x55);
    std::ofstream(l.file, std::ios::binary | std::ios::trunc) << damaged;
    REQUIRE(l.next_ids() == ids{"a", "c"});
  }
}

TEST_CASE("an id that was forgotten is used up, one that was withdrawn is free") {
  logged l;
  for (const auto* id : {"kept", "forgotten", "withdrawn", "again"}) l.begin(id);
  l.log.note(exited("forgotten"));
  l.log.note(dropped_record{"forgotten", true});
  for (const auto* id : {"withdrawn", "again"}) l.log.note(dropped_record{id, false});
  l.begin("again");
  const auto all = l.next();
  CHECK(l.next_ids() == ids{"kept", "again"});
  CHECK(all.used_up == std::vector{base::id_hash("forgotten")});
}

TEST_CASE("a write that ended well is known after it is forgotten, so many of them") {
  logged l;
  const auto most = command_log::max_settled_writes;
  for (std::size_t i = 0; i < most + 10; ++i) {
    const auto id = "w" + std::to_string(i);
    l.begin(id);
    l.log.note(wrote(id, i));
    l.log.note(dropped_record{id, true});
  }
  for (const bool compacted : {false, true}) {
    if (compacted) REQUIRE(l.log.compact());
    const auto all = l.next();
    REQUIRE(all.commands.size() == most);
    CHECK(all.used_up.size() == 10);
    CHECK(all.commands.front().known.id == "w10");
    CHECK(all.commands.front().known.written_size == 10);
    CHECK(all.commands.front().settled);
  }
}

TEST_CASE("a write that was known and is made again counts anew") {
  logged l;
  l.begin("w");
  l.log.note(wrote("w", 1));
  l.log.note(dropped_record{"w", true});
  l.begin("w");
  CHECK(std::holds_alternative<known_command::pending>(l.next().commands.at(0).known.end));
  l.log.note(wrote("w", 2));
  CHECK(l.next().commands.at(0).known.written_size == 2);
}

TEST_CASE("the log is bounded by what is kept") {
  logged l;
  l.begin("first");
  std::uintmax_t largest = 0;
  int compacted = 0;
  constexpr int many = 20'000;
  for (int i = 0; i < many; ++i) {
    const auto id = "c" + std::to_string(i);
    l.begin(id);
    l.log.note(exited(id));
    l.log.note(dropped_record{id, true});
    if (!l.log.grown()) continue;
    CHECK_FALSE(l.log.grown());  // said once
    largest = std::max(largest, std::filesystem::file_size(l.file));
    REQUIRE(l.log.compact());
    ++compacted;
  }
  l.log.note(exited("first"));
  CHECK(compacted > 10);
  CHECK(largest < 100'000);
  const auto all = l.next();
  REQUIRE(all.commands.size() == 1);
  CHECK(std::holds_alternative<backends::command_exited>(all.commands[0].known.end));
  CHECK(all.used_up.size() == many);
}

TEST_CASE("a compaction that was killed costs nothing") {
  logged l;
  for (const auto* id : {"a", "b"}) l.begin(id);
  l.log.note(dropped_record{"a", true});
  const auto before = *sys::read_file(l.file);
  REQUIRE(l.log.compact());
  // As if it had died before the rename, and in the middle of a hash.
  std::ofstream(l.file, std::ios::binary | std::ios::trunc) << before;
  std::ofstream(l.dir.path() / "ids.used", std::ios::binary | std::ios::app) << "abc";
  std::ofstream(l.dir.path() / "commands.log.new") << before.substr(0, 40);
  CHECK(l.next_ids() == ids{"b"});
  CHECK(l.next().used_up == std::vector{base::id_hash("a")});
  CHECK_FALSE(std::filesystem::exists(l.dir.path() / "commands.log.new"));
  command_log next(l.dir.path());
  REQUIRE(next.load());
  next.note(dropped_record{"b", true});
  REQUIRE(next.compact());
  auto expected = std::vector{base::id_hash("a"), base::id_hash("b")};
  std::sort(expected.begin(), expected.end());
  CHECK(l.next().used_up == expected);
  CHECK(std::filesystem::file_size(l.file) == 0);
}

TEST_CASE("many threads write at once, while it is compacted") {
  logged l;
  constexpr int threads = 8, each = 400;
  std::vector<std::thread> writers;
  for (int t = 0; t < threads; ++t) {
    writers.emplace_back([&, t] {
      for (int i = 0; i < each; ++i) {
        const auto id = std::to_string(t) + "." + std::to_string(i);
        if (!l.log.begin(begun(id))) return;
        l.log.note(exited(id, i % 100));
        if (i % 2 == 1) l.log.note(dropped_record{id, true});
      }
    });
  }
  for (int i = 0; i < 20; ++i) {
    (void)l.log.compact();  // at first there may be no file
    std::this_thread::yield();
  }
  for (auto& w : writers) w.join();
  const auto all = l.next();
  CHECK(all.commands.size() == threads * each / 2);
  CHECK(all.used_up.size() == threads * each / 2);
  for (const auto& c : all.commands) {
    const auto& end = std::get<backends::command_exited>(c.known.end);
    REQUIRE(end.exit_code == std::stoi(end.id.substr(2)) % 100);
  }
}

TEST_CASE("on a full disk no command begins, and what ended is written when there is room") {
  logged l;
  l.begin("a");
  l.begin("b");
  const auto size = std::filesystem::file_size(l.file);
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit full{size + 10, before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &full) == 0);
  const auto refused = l.log.begin(begun("c"));
  l.log.note(exited("a", 5));
  const auto still = l.log.begin(begun("c"));
  const auto size_then = std::filesystem::file_size(l.file);
  ::setrlimit(RLIMIT_FSIZE, &before);
  REQUIRE_FALSE(refused);
  CHECK_FALSE(still);
  CHECK(refused.error().message.find(l.file.string()) != std::string::npos);
  CHECK(size_then == size);
  l.begin("d");
  const auto all = l.next();
  CHECK(l.next_ids() == ids{"a", "b", "d"});
  CHECK(std::get<backends::command_exited>(all.commands[0].known.end).exit_code == 5);
}

TEST_CASE("what waits for a record is done when that is written, in order and once") {
  logged l;
  for (const auto* id : {"a", "b", "c"}) l.begin(id);
  std::string done;
  const auto then = [&](const char* what) { return [&done, what] { done += what; }; };
  l.log.note(dropped_record{"a", true}, then("a"));
  CHECK(done == "a");
  CHECK_FALSE(l.log.lagging());
  ::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit full{std::filesystem::file_size(l.file), before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &full) == 0);
  for (const auto* id : {"b", "c"}) l.log.note(dropped_record{id, true}, then(id));
  const bool lags = l.log.lagging(), twice = l.log.lagging();
  const auto late = l.log.write_late();
  const auto done_then = done;
  ::setrlimit(RLIMIT_FSIZE, &before);
  CHECK(lags);
  CHECK_FALSE(twice);  // said once
  CHECK_FALSE(late);
  CHECK(done_then == "a");
  SECTION("by itself") {
    CHECK(l.log.write_late());
  }
  SECTION("with the next record") {
    l.begin("d");
  }
  CHECK(done == "abc");
  CHECK(l.next().used_up.size() == 3);
  CHECK(l.log.write_late());
  CHECK_FALSE(l.log.lagging());
  CHECK(done == "abc");
  l.log.close();
  std::filesystem::remove(l.file);
  CHECK(l.log.write_late());
}

TEST_CASE("what is forgotten after the directory is gone makes nothing") {
  logged l;
  l.begin("a");
  l.log.close();
  std::filesystem::remove(l.file);
  l.log.note(dropped_record{"a", true});
  CHECK_FALSE(std::filesystem::exists(l.file));
}

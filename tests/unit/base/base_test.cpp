#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "base/error.hpp"
#include "base/failpoint.hpp"
#include "base/ids.hpp"

using namespace dsec::base;  // NOLINT(google-build-using-namespace): a test of this very namespace

TEST_CASE("every error code has a name of its own and an exit code") {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(errc::cancelled); ++i) {
    const auto code = static_cast<errc>(i);
    CHECK(names.insert(to_string(code)).second);
    CHECK(dsec::base::parse_errc(to_string(code)) == code);
    CHECK((exit_code(code) == 0) == (code == errc::ok));
  }
}

TEST_CASE("an error says what, why and which code") {
  const auto e = from_errno("open '/x'", ENOENT);
  CHECK(e.code == errc::not_found);
  CHECK(e.to_string() == "open '/x': No such file or directory (not_found)");
}

TEST_CASE("a sandbox id is a host name that names its edge") {
  const auto id = new_sandbox_id("edge-7");
  CHECK(is_valid_id(id));
  CHECK(edge_of(id).value() == "edge-7");
  CHECK(new_sandbox_id("e") != new_sandbox_id("e"));
  for (const auto* bad : {"", "-a", "a-", "A", "a/b", "a.b", "a b"}) CHECK_FALSE(is_valid_id(bad));
  CHECK_FALSE(is_valid_id(std::string(64, 'a')));
  CHECK_FALSE(edge_of("nodash"));
}

TEST_CASE("command ids are short and free of path characters") {
  CHECK(is_valid_command_id("Build_1.2-x"));
  for (const auto* bad : {"", "a/b", "a b", "\n"}) CHECK_FALSE(is_valid_command_id(bad));
  CHECK_FALSE(is_valid_command_id(std::string(65, 'a')));
}

#ifdef DSEC_FAILPOINTS
TEST_CASE("a failure point fires once, or always when sticky") {
  failpoint::arm("test.once", "error");
  CHECK_FALSE(failpoint::check("test.once"));
  CHECK(failpoint::check("test.once"));
  failpoint::arm("test.always", "error", true);
  CHECK_FALSE(failpoint::check("test.always"));
  CHECK_FALSE(failpoint::check("test.always"));
  failpoint::disarm_all();
  CHECK(failpoint::check("test.always"));
}

TEST_CASE("a failure point with a percentage fires as often, and the same times again") {
  const auto fired = [] {
    failpoint::arm("test.some", "error:5%");
    std::vector<int> times;
    for (int i = 0; i < 2000; ++i) {
      if (!failpoint::check("test.some")) times.push_back(i);
    }
    failpoint::disarm_all();
    return times;
  };
  const auto first = fired();
  CHECK(first.size() > 60);  // 100 are expected; five deviations
  CHECK(first.size() < 150);
  CHECK(fired() == first);
  failpoint::arm("test.other", "error:100%");
  CHECK_FALSE(failpoint::check("test.other"));
  CHECK_FALSE(failpoint::check("test.other"));
  failpoint::disarm_all();
}
#endif

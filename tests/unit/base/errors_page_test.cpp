// docs/errors.md says of every code what the code does, and of no other.
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <regex>
#include <string>

#include "base/error.hpp"

using dsec::base::errc;

namespace {

struct row {
  bool retry = false;
  unsigned http_status = 0;
  int exit_code = 0;
};

std::map<std::string, row> table() {
  // | `code` | meaning | retry | HTTP status | exit code | SDK exception |
  const std::regex shape(R"(^\| `(\w+)` \| .* \| (yes|no) \| (\d+) \| (\d+) \| `\w+` \|$)");
  std::map<std::string, row> rows;
  std::ifstream page(DSEC_SOURCE_DIR "/docs/errors.md");
  REQUIRE(page);
  for (std::string line; std::getline(page, line);) {
    std::smatch m;
    if (!std::regex_match(line, m, shape)) continue;
    const auto ok = rows.emplace(
        m[1], row{m[2] == "yes", static_cast<unsigned>(std::stoul(m[3])), std::stoi(m[4])});
    CHECK(ok.second);
  }
  return rows;
}

}  // namespace

TEST_CASE("the page on errors says what every code is, and knows no other") {
  auto rows = table();
  // Codes are numbered without gaps; what is no code has the name of `internal`.
  for (unsigned i = 1; i == 1 || to_string(static_cast<errc>(i)) != "internal"; ++i) {
    const auto code = static_cast<errc>(i);
    const std::string name(to_string(code));
    CAPTURE(name);
    const auto found = rows.extract(name);
    REQUIRE(found);
    CHECK(found.mapped().retry == retryable(code));
    CHECK(found.mapped().exit_code == exit_code(code));
    CHECK(found.mapped().http_status == dsec::base::http_status(code));
  }
  for (const auto& [name, rest] : rows) FAIL_CHECK("no code is called " << name);
}

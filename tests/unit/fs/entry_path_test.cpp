#include "fs/unpack/entry_path.hpp"

#include <catch2/catch.hpp>

using dsec::base::errc;
using namespace dsec::fs::unpack;

TEST_CASE("names of entries become paths below the root") {
  const auto path = [](const char* raw) {
    const auto p = parse_entry_path(raw).value();
    return p.directory + "|" + p.name;
  };
  CHECK(path("a") == "|a");
  CHECK(path("a/b/c") == "a/b|c");
  CHECK(path("./a//b/./c/") == "a/b|c");
  CHECK(path("/etc/passwd") == "etc|passwd");
  CHECK(path("./") == "|");
  CHECK(path("/") == "|");
  CHECK(path("") == "|");
  CHECK(path("...") == "|...");
  CHECK(path("a/.whx") == "a|.whx");
}

TEST_CASE("names that lead out, or into a whiteout, are refused by name", "[threat-17]") {
  for (const char* bad :
       {"..", "../x", "a/../../x", "/..", "a/..", "./../a", "a/.wh.b/c", ".wh..wh..opq/x"}) {
    INFO(bad);
    const auto p = parse_entry_path(bad);
    REQUIRE_FALSE(p);
    CHECK(p.error().code == errc::invalid_argument);
    CHECK(p.error().message.find(bad) != std::string::npos);
  }
  CHECK_FALSE(parse_entry_path(std::string(1U << 20U, 'x')));
}

TEST_CASE("whiteouts are told by their names") {
  const auto marked = [](const char* name) { return parse_marker({"d", name}); };
  CHECK(marked("x")->what == marker::none);
  CHECK(marked(".wh")->what == marker::none);
  CHECK(marked(".wh.x")->what == marker::whiteout);
  CHECK(marked(".wh.x")->hidden == "x");
  CHECK(marked(".wh..wh..opq")->what == marker::opaque);
  CHECK(marked(".wh..wh.plnk")->hidden == ".wh.plnk");
  for (const char* bad : {".wh.", ".wh..", ".wh..."})
    CHECK(marked(bad).error().code == errc::invalid_argument);
}

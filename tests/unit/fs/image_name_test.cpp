#include "fs/image_name.hpp"

#include <catch2/catch.hpp>
#include <string>

using dsec::base::errc;
using dsec::fs::layer_kind;
using dsec::fs::parse_image_name;
using dsec::fs::parse_layer_kind;
using dsec::fs::parse_manifest_file_name;

TEST_CASE("a reference without a tag means latest") {
  const auto plain = parse_image_name(layer_kind::base, "debian-python");
  REQUIRE(plain);
  CHECK(plain->name == "debian-python");
  CHECK(plain->tag == "latest");
  const auto tagged = parse_image_name(layer_kind::toolkit, "pytest:8.3_RC-1");
  REQUIRE(tagged);
  CHECK(tagged->tag == "8.3_RC-1");
  CHECK(tagged->describe() == "toolkit image pytest:8.3_RC-1");
}

TEST_CASE("names that could leave their directory or confuse a reader are refused", "[threat-17]") {
  const std::string longest(100, 'a');
  CHECK(parse_image_name(layer_kind::base, longest + ":" + longest));
  for (const std::string bad :
       {"",        ":",    ":1",    "a:",          "..",      "../x", "a/b", "/etc/passwd",
        ".hidden", "-rf",  "_x",    "A",           "a:b:c",   "a b",  "a@1", "a:t@g",
        "a:t/g",   "a\nb", "a:t\n", "caf\xc3\xa9", "a\x1b[2J"}) {
    const auto name = parse_image_name(layer_kind::base, bad);
    INFO(bad);
    REQUIRE_FALSE(name);
    CHECK(name.error().code == errc::invalid_argument);
    CHECK(name.error().message.find('\n') == std::string::npos);
    CHECK(name.error().message.find('\x1b') == std::string::npos);
  }
  CHECK_FALSE(parse_image_name(layer_kind::base, std::string("a\0b", 3)));
  CHECK_FALSE(parse_image_name(layer_kind::base, longest + "a"));
  CHECK_FALSE(parse_image_name(layer_kind::base, "a:" + longest + "a"));
}

TEST_CASE("a manifest's file name fits the file system and says which image it is") {
  const auto name =
      parse_image_name(layer_kind::workspace, std::string(100, 'a') + ":" + std::string(100, 'T'));
  REQUIRE(name);
  CHECK(name->file_name().size() <= 255);
  CHECK(parse_manifest_file_name(layer_kind::workspace, name->file_name()) == *name);
  for (const char* bad :
       {"x", "x.json", "@.json", "x@.json", "@y.json", "x@y", "x@y@z.json", "X@y.json", ".json"}) {
    INFO(bad);
    CHECK_FALSE(parse_manifest_file_name(layer_kind::base, bad));
  }
}

TEST_CASE("kinds survive their names") {
  for (const auto kind : {layer_kind::base, layer_kind::workspace, layer_kind::toolkit}) {
    CHECK(parse_layer_kind(to_string(kind)).value() == kind);
  }
  CHECK(parse_layer_kind("overlay").error().code == errc::invalid_argument);
}

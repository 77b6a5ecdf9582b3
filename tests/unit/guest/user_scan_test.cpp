#include "guest/aether/user_scan.hpp"

#include <catch2/catch.hpp>
#include <string>

using namespace dsec::guest::aether;

namespace {

/// Feeds `text` in pieces of `piece` bytes: no buffer border may matter.
template <class scan>
scan& feed(scan& into, const std::string& text, std::size_t piece) {
  field_splitter<scan> split(into);
  for (std::size_t at = 0; at < text.size(); at += piece) {
    const std::string part = text.substr(at, piece);
    split.feed(part.data(), part.size());
  }
  split.finish();
  return into;
}

const std::string passwd =
    "root:x:0:0:root:/root:/bin/bash\n"
    "\n"
    "# comment\n"
    "broken:x:12\n"
    "joey:x:7:7::/home/joey:/bin/sh\n"
    "jo:x:abc:1::/:\n"
    "big:x:4294967295:1::/:\n"
    "joe:x:1000:100:Joe,,,:/home/joe:/bin/sh\n"
    "joe:x:2000:200:twice:/other:/bin/sh";

const std::string group =
    "root:x:0:\n"
    "wheel:x:10:root,joe\n"
    "near:x:11:joey,jo\n"
    "last:x:12:ann,bob,joe\n"
    "odd:x:zz:joe\n"
    "joe:x:1000:\n"
    "none:x:13";

}  // namespace

TEST_CASE("a user is found by its whole name, first line first") {
  for (const std::size_t piece : {1U, 3U, 1000U}) {
    passwd_scan joe("joe", 0);
    feed(joe, passwd, piece);
    REQUIRE(joe.found);
    CHECK(joe.uid == 1000);
    CHECK(joe.gid == 100);
    CHECK(joe.home.c_str() == std::string("/home/joe"));
    CHECK(joe.user_name.c_str() == std::string("joe"));
  }
}

TEST_CASE("a user is found by number") {
  passwd_scan by_number(nullptr, 2000);
  feed(by_number, passwd, 7);
  REQUIRE(by_number.found);
  CHECK(by_number.gid == 200);
  passwd_scan zero(nullptr, 0);
  CHECK(feed(zero, passwd, 7).found);
  CHECK(zero.home.c_str() == std::string("/root"));
}

TEST_CASE("lines that are no users are passed over") {
  for (const char* name : {"broken", "jo", "big", "", "# comment", "nobody"}) {
    passwd_scan scan(name, 0);
    CHECK_FALSE(feed(scan, passwd, 5).found);
  }
  passwd_scan number(nullptr, 12);
  CHECK_FALSE(feed(number, passwd, 5).found);
}

TEST_CASE("groups are those that list the user") {
  for (const std::size_t piece : {1U, 4U, 1000U}) {
    group_scan scan("joe", nullptr);
    feed(scan, group, piece);
    REQUIRE(scan.count == 2);
    CHECK(scan.gids[0] == 10);
    CHECK(scan.gids[1] == 12);
    CHECK_FALSE(scan.found);
  }
}

TEST_CASE("a group is found by name") {
  group_scan scan(nullptr, "none");
  feed(scan, group, 3);
  CHECK(scan.found);
  CHECK(scan.named_gid == 13);
  CHECK(scan.count == 0);
  group_scan odd(nullptr, "odd");
  CHECK_FALSE(feed(odd, group, 3).found);
}

TEST_CASE("lines of any length and number of members are bounded") {
  std::string text = "many:x:5:";
  for (int i = 0; i < 100'000; ++i) text += "user" + std::to_string(i) + ",";
  text += "joe\n";
  for (int i = 0; i < 1000; ++i) text += "g:x:" + std::to_string(i) + ":joe\n";
  group_scan scan("joe", nullptr);
  feed(scan, text, 1024);
  CHECK(scan.count == max_groups);
  CHECK(scan.gids[0] == 5);

  passwd_scan long_home("x", 0);
  feed(long_home, "x:x:1:1::/" + std::string(5000, 'h') + ":\n", 100);
  CHECK(long_home.found);
  CHECK(long_home.home.size() == 0);
}

#include "guest/aether/text.hpp"

#include <catch2/catch.hpp>
#include <string>

using namespace dsec::guest::aether;

TEST_CASE("numbers are read whole or not at all") {
  std::uint32_t n = 7;
  CHECK(parse_u32("0", n));
  CHECK(n == 0);
  CHECK(parse_u32("4294967295", n));
  CHECK(n == 4294967295U);
  for (const char* bad : {"", "4294967296", "99999999999999999999", "-1", "1a", " 1"})
    CHECK_FALSE(parse_u32(bad, n));
}

TEST_CASE("text that does not fit is marked, not cut") {
  fixed_text<8> t;
  t.add("abc").add(std::uint64_t{42});
  CHECK(t.c_str() == std::string("abc42"));
  CHECK_FALSE(t.bad());
  t.add("xyz");
  CHECK(t.bad());
  CHECK(t.c_str() == std::string("abc42"));
  fixed_text<32> big;
  CHECK(big.add(UINT64_MAX).c_str() == std::string("18446744073709551615"));
}

TEST_CASE("values of the kernel's keyed files are found at line starts only") {
  const std::string events = "low 0\noom 3\noom_kill 12\noom_group_kill 9\n";
  CHECK(keyed_value(events.data(), events.size(), "oom_kill ") == 12);
  CHECK(keyed_value(events.data(), events.size(), "oom ") == 3);
  CHECK(keyed_value(events.data(), events.size(), "kill ") == 0);
  const std::string v1 = "oom_kill_disable 1\nunder_oom 1\noom_kill 5";
  CHECK(keyed_value(v1.data(), v1.size(), "oom_kill ") == 5);
  CHECK(keyed_value("", 0, "oom_kill ") == 0);
}

TEST_CASE("strings compare as strings") {
  CHECK(equal("a", "a"));
  CHECK_FALSE(equal("a", "ab"));
  CHECK_FALSE(equal("ab", "a"));
  CHECK(starts_with("PATH=/bin", "PATH="));
  CHECK_FALSE(starts_with("PAT", "PATH="));
  CHECK(contains("a/b", '/'));
  CHECK_FALSE(contains("", '/'));
}

#include "base/text.hpp"

#include <catch2/catch.hpp>

using namespace dsec::base;

TEST_CASE("what is UTF-8 stays as it is") {
  for (const auto* text : {"", "plain", "na\xC3\xAFve", "\xE6\xBC\xA2\xE5\xAD\x97",
                           "\xF0\x9F\x98\x80", "\xED\x9F\xBF\xEE\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    CHECK(is_utf8(text));
    CHECK(as_utf8(text) == text);
  }
}

TEST_CASE("bytes that are no character become U+FFFD, those around them stay") {
  const std::string mark = "\xEF\xBF\xBD";
  CHECK(as_utf8("a\xFF"
                "b") == "a" + mark + "b");
  CHECK(as_utf8("\x80") == mark);
  CHECK(as_utf8("\xE6\xBC") == mark + mark);                        // cut short
  CHECK(as_utf8("\xC0\xAF") == mark + mark);                        // overlong '/'
  CHECK(as_utf8("\xE0\x80\xAF") == mark + mark + mark);             // overlong
  CHECK(as_utf8("\xED\xA0\x80") == mark + mark + mark);             // a surrogate
  CHECK(as_utf8("\xF4\x90\x80\x80") == mark + mark + mark + mark);  // over U+10FFFF
  CHECK(as_utf8("\xE6\xBC\xA2\xE6"
                "x") == "\xE6\xBC\xA2" + mark + "x");
}

TEST_CASE("every string of three bytes becomes UTF-8") {
  std::string bytes(3, '\0');
  bool all = true;
  for (int first = 0x7F; first < 0x100; ++first) {
    for (int second = 0x3F; second < 0x100; second += 3) {
      for (int third = 0x7E; third < 0x100; third += 5) {
        bytes = {static_cast<char>(first), static_cast<char>(second), static_cast<char>(third)};
        all = all && is_utf8(as_utf8(bytes)) && is_utf8(shown(bytes, 2));
      }
    }
  }
  CHECK(all);
}

TEST_CASE("text is cut between characters") {
  const std::string text = "ab\xE6\xBC\xA2\xF0\x9F\x98\x80";
  for (std::size_t limit = 0; limit <= text.size() + 1; ++limit) {
    const auto cut = shown(text, limit);
    CHECK(cut.size() <= limit);
    CHECK(is_utf8(cut));
    CHECK(text.starts_with(cut));
  }
  CHECK(shown(text, 4) == "ab");
  CHECK(shown(text, 5) == "ab\xE6\xBC\xA2");
}

TEST_CASE("what replaces a byte counts towards the limit") {
  CHECK(shown("\xFF\xFF", 5) == "\xEF\xBF\xBD");
  CHECK(shown("\xFF\xFF", 6) == "\xEF\xBF\xBD\xEF\xBF\xBD");
  CHECK(shown("abc\xFF", 3) == "abc");
  CHECK(shown(std::string(10'000, '\xFF'), 4096).size() == 4095);
}

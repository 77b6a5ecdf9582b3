#include "actors/event_cursor.hpp"

#include <catch2/catch.hpp>

using dsec::actors::event_cursor;

TEST_CASE("a cursor of events is the same again after its text") {
  event_cursor c;
  c.set("w1", {"abc", 7});
  c.set("w-2", {"xyz", 18'446'744'073'709'551'615ULL});
  const auto again = event_cursor::parse(c.text());
  REQUIRE(again);
  CHECK(again->text() == c.text());
  CHECK(again->since("w1", "abc") == 7);
  CHECK(again->since("w1", "another") == 0);
  CHECK(again->since("w3", "abc") == 0);
  CHECK(again->since("w-2", "xyz") == 18'446'744'073'709'551'615ULL);
}

TEST_CASE("no text is the beginning of all events") {
  const auto c = event_cursor::parse("");
  REQUIRE(c);
  CHECK(c->places().empty());
  CHECK(c->text().empty());
}

TEST_CASE("what is no cursor is refused with what to do") {
  for (const auto* text : {"x", "w1:a", "w1:a:", "w1:a:b", "w1:a:1:2", "w1::1", ":a:1", "W1:a:1",
                           ",", "w1:a:1,,w2:a:1", "w1:a:99999999999999999999"}) {
    CAPTURE(text);
    const auto c = event_cursor::parse(text);
    REQUIRE_FALSE(c);
    CHECK(c.error().code == dsec::base::errc::invalid_argument);
    CHECK(c.error().message.find("cursor") != std::string::npos);
  }
}

TEST_CASE("a place is taken over from another cursor, if that has one") {
  event_cursor from, to;
  from.set("w1", {"abc", 7});
  to.take("w1", from);
  to.take("w2", from);
  CHECK(to.text() == "w1:abc:7");
}

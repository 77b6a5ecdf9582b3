#include "actors/large_requests.hpp"

#include <catch2/catch.hpp>

using namespace std::chrono_literals;
using dsec::actors::large_requests;
using dsec::actors::time_point;

namespace {

const time_point now{};

large_requests::request one(std::uint64_t serial, const std::string& sandbox,
                            std::size_t bytes = 10) {
  return {100 + serial, serial, sandbox, bytes, now + 1s};
}

const auto any = [](std::size_t) { return true; };

}  // namespace

TEST_CASE("what is promised is taken back when it is over") {
  large_requests r;
  r.hold(one(1, "a"));
  r.hold(one(2, ""));
  CHECK(r.promised() == 0);
  CHECK(r.next(now, any)->id == 101);
  CHECK(r.next(now, any)->id == 102);
  CHECK_FALSE(r.next(now, any));
  CHECK(r.promised() == 20);
  r.end(1);
  r.end(1);
  r.end(77);
  CHECK(r.promised() == 10);
}

TEST_CASE("a sandbox owes two at a time, and others go first meanwhile") {
  large_requests r;
  for (std::uint64_t i = 1; i <= 3; ++i) r.hold(one(i, "a"));
  r.hold(one(4, "b"));
  CHECK(r.next(now, any)->serial == 1);
  CHECK(r.next(now, any)->serial == 2);
  CHECK(r.next(now, any)->serial == 4);
  CHECK_FALSE(r.next(now, any));
  r.end(1);
  CHECK(r.next(now, any)->serial == 3);
}

TEST_CASE("a large one is not overtaken, one that is late is") {
  large_requests r;
  r.hold(one(1, "a", 100));
  r.hold(one(2, "b", 1));
  const auto little = [](std::size_t bytes) { return bytes < 50; };
  CHECK_FALSE(r.next(now, little));
  CHECK_FALSE(r.next(now + 2s, any));  // all are
  r.end(1);
  CHECK(r.next(now, little)->serial == 2);
}

TEST_CASE("nothing is kept of what was answered while it waited") {
  large_requests r;
  r.hold(one(1, "a", 100));  // finds no room
  for (std::uint64_t i = 2; i < 10'000; ++i) {
    r.hold(one(i, "a"));
    CHECK_FALSE(r.next(now, [](std::size_t) { return false; }));
    r.end(i);
  }
  CHECK(r.held() == 1);
  r.end(1);
  CHECK(r.held() == 0);
  CHECK(r.promised() == 0);
}

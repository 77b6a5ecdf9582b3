#include "actors/event_log.hpp"

#include <catch2/catch.hpp>

using dsec::actors::event;
using dsec::actors::event_filter;
using dsec::actors::event_kind;
using dsec::actors::event_log;

namespace {

event of(const char* owner, const char* sandbox, const char* trace = "t") {
  return {
      .kind = event_kind::sandbox_running, .owner = owner, .sandbox_id = sandbox, .trace = trace};
}

std::vector<std::uint64_t> numbers(const event_log& log, const event_filter& f) {
  std::vector<std::uint64_t> out;
  for (const auto& e : log.find(f).events) out.push_back(e.seq);
  return out;
}

event_filter all_of(const char* principal) {
  return {.principal = principal, .trace = {}, .sandbox_id = {}, .since = 0, .limit = 100};
}

using list = std::vector<std::uint64_t>;

}  // namespace

TEST_CASE("an empty event log has nothing, and nothing is missing") {
  const event_log log;
  const auto page = log.find(all_of("alice"));
  CHECK(page.events.empty());
  CHECK(page.last == 0);
  CHECK(page.dropped == 0);
}

TEST_CASE("each sees what is his and what is of the node") {
  event_log log;
  log.add(of("alice", "a"));
  log.add(of("bob", "b"));
  log.add({.kind = event_kind::launcher_restarted});
  CHECK(numbers(log, all_of("alice")) == list{1, 3});
  CHECK(numbers(log, all_of("bob")) == list{2, 3});
  CHECK(numbers(log, all_of("")) == list{3});
}

TEST_CASE("events are found by trace and by sandbox") {
  event_log log;
  log.add(of("alice", "a", "one"));
  log.add(of("alice", "b", "two"));
  log.add(of("alice", "a", "two"));
  auto f = all_of("alice");
  f.trace = "two";
  CHECK(numbers(log, f) == list{2, 3});
  f.sandbox_id = "a";
  CHECK(numbers(log, f) == list{3});
  f.trace.clear();
  CHECK(numbers(log, f) == list{1, 3});
}

TEST_CASE("a reader goes on where the last page ended, also over events that are not his") {
  event_log log;
  for (int i = 0; i < 4; ++i) log.add(of(i % 2 == 0 ? "alice" : "bob", "s"));
  auto f = all_of("alice");
  f.limit = 1;
  auto page = log.find(f);
  CHECK(page.last == 1);
  f.since = page.last;
  page = log.find(f);
  REQUIRE(page.events.size() == 1);
  CHECK(page.events[0].seq == 3);
  f.since = page.last;
  page = log.find(f);
  CHECK(page.events.empty());
  CHECK(page.last == 4);
  f.since = 1000;  // of nobody's
  CHECK(log.find(f).last == 4);
}

TEST_CASE("of a full log the oldest go, and a reader is told how many") {
  event_log log(3);
  for (int i = 0; i < 10; ++i) log.add(of("alice", "s"));
  auto page = log.find(all_of("alice"));
  CHECK(page.dropped == 7);
  CHECK(page.events.front().seq == 8);
  auto f = all_of("alice");
  f.since = 6;
  CHECK(log.find(f).dropped == 1);
  f.since = 7;
  CHECK(log.find(f).dropped == 0);
  CHECK(numbers(log, f) == list{8, 9, 10});
}

TEST_CASE("whoever waits is called once for each time that he asked") {
  event_log log;
  int calls = 0;
  const auto me = log.wake_with([&] { ++calls; });
  log.add(of("alice", "s"));
  CHECK(calls == 0);
  log.call_once();
  log.add(of("alice", "s"));
  log.add(of("alice", "s"));
  CHECK(calls == 1);
  int others = 0;
  const auto next = log.wake_with([&] { ++others; });
  log.leave(me);  // too late to matter
  log.call_once();
  log.add(of("alice", "s"));
  CHECK(calls == 1);
  CHECK(others == 1);
  log.call_once();
  log.leave(next);
  log.add(of("alice", "s"));
  CHECK(others == 1);
}

// What a coordinator tells of its workers: their events as one list, each of their nodes, and what
// it counts itself.
#include <algorithm>
#include <catch2/catch.hpp>
#include <set>

#include "cluster_fixture.hpp"
#include "reports.hpp"

using namespace dsec;
using namespace dsec::test;
using namespace std::chrono_literals;

namespace {

using names = std::vector<std::string>;

void tell(node_fixture& on, const char* owner, const char* detail = "") {
  on.worker->events->add(
      {.kind = actors::event_kind::sandbox_running, .owner = owner, .detail = detail});
}

told_events asked(client& c, const client::fill& f) {
  const auto told = events_of(c, c.ask(f));
  REQUIRE(told);
  return *told;
}

}  // namespace

TEST_CASE("events of all workers are one list, each told once however small the pages are") {
  cluster_fixture all({"w1", "w2", "w3"});
  client alice(all, "alice");
  for (int i = 0; i < 5; ++i) {
    tell(all.node("w1"), "alice");
    tell(all.node("w2"), "bob");
    tell(all.node("w3"), "alice");
  }
  const auto whole = asked(alice, list_events());
  CHECK(whole.kinds.size() == 10);
  CHECK(std::set(whole.edges.begin(), whole.edges.end()) == std::set<std::string>{"w1", "w3"});
  CHECK(asked(alice, list_events(whole.cursor)).kinds.empty());
  std::multiset<std::string> seen;
  for (std::string after;;) {
    const auto page = asked(alice, list_events(after, 0, [](auto e) { e.setLimit(3); }));
    CHECK(page.kinds.size() <= 3);
    if (page.kinds.empty()) break;
    seen.insert(page.edges.begin(), page.edges.end());
    after = page.cursor;
  }
  CHECK(seen.count("w1") == 5);
  CHECK(seen.count("w3") == 5);
  CHECK(seen.size() == 10);
  tell(all.node("w2"), "alice");
  CHECK(asked(alice, list_events(whole.cursor)).edges == names{"w2"});
}

TEST_CASE("nobody sees through a coordinator what happens to another's sandboxes") {
  cluster_fixture all({"w1", "w2"});
  client alice(all, "alice"), bob(all, "bob");
  all.running_sandbox(alice);
  CHECK(asked(alice, list_events()).kinds == names{"sandbox.created", "sandbox.running"});
  CHECK(asked(bob, list_events()).kinds.empty());
  const auto of_alice = asked(alice, list_events()).sandboxes.front();
  CHECK(bob.call(get_usage(of_alice)).code == "not_found");
  CHECK(read_reply(alice, alice.ask(get_usage(of_alice)),
                   [](proto::Reply::Reader r) { CHECK(r.getBody().isUsage()); }));
}

TEST_CASE("who waits at a coordinator is answered soon after something happens on any worker") {
  cluster_fixture all({"w1", "w2"});
  client alice(all, "alice");
  const auto waiting = alice.ask(list_events({}, 10'000), 20'000);
  const auto others = alice.ask(list_events({}, 2'000), 20'000);
  all.advance(1s);
  CHECK_FALSE(events_of(alice, waiting));
  all.advance(2s);
  REQUIRE(events_of(alice, others));
  CHECK(events_of(alice, others)->kinds.empty());
  tell(all.node("w2"), "alice");
  all.advance(300ms);
  REQUIRE(events_of(alice, waiting));
  CHECK(events_of(alice, waiting)->edges == names{"w2"});
}

TEST_CASE("what happened on a worker that is gone is told when it is back, and not lost before") {
  cluster_fixture all({"w1", "w2"});
  client alice(all, "alice");
  tell(all.node("w1"), "alice", "first");
  tell(all.node("w2"), "alice");
  const auto before = asked(alice, list_events());
  all.workers.at("w1").connector->unplugged = true;
  all.cut("w1");
  all.advance(11s);  // it is lost
  tell(all.node("w1"), "alice", "meanwhile");
  tell(all.node("w2"), "alice");
  const auto without = asked(alice, list_events(before.cursor));
  CHECK(without.edges == names{"w2"});
  CHECK(without.unreachable == names{"w1"});
  all.workers.at("w1").connector->unplugged = false;
  all.advance(30s);
  const auto after = asked(alice, list_events(without.cursor));
  CHECK(after.unreachable.empty());
  CHECK(std::set(after.edges.begin(), after.edges.end()) == std::set<std::string>{"w1"});
  // Beside what the worker says of its lost link.
  CHECK(std::count(after.kinds.begin(), after.kinds.end(), "sandbox.running") == 1);
}

TEST_CASE("a coordinator refuses a cursor that is none itself") {
  cluster_fixture all({"w1"});
  client alice(all, "alice");
  const auto refused = alice.call(list_events("nonsense"));
  CHECK(refused.code == "invalid_argument");
  CHECK(refused.message.find("cursor") != std::string::npos);
}

TEST_CASE("a coordinator lists each worker's node, and names those that do not answer") {
  cluster_fixture all({"w1", "w2"});
  client alice(all, "alice");
  all.running_sandbox(alice);
  const auto seen = [&](const std::function<void(proto::Reply::Reader)>& look) {
    CHECK(read_reply(alice, alice.ask(list_nodes()), look));
  };
  seen([](proto::Reply::Reader r) {
    REQUIRE(r.getBody().isNodes());
    const auto nodes = r.getBody().getNodes();
    REQUIRE(nodes.size() == 2);
    CHECK(nodes[0].getEdge() == "w1");
    CHECK(nodes[1].getEdge() == "w2");
    CHECK(nodes[0].getSandboxes() + nodes[1].getSandboxes() == 1);
  });
  all.workers.at("w2").connector->unplugged = true;
  all.cut("w2");
  all.advance(11s);
  seen([](proto::Reply::Reader r) {
    REQUIRE(r.getBody().getNodes().size() == 1);
    REQUIRE(r.getUnreachable().size() == 1);
    CHECK(r.getUnreachable()[0] == "w2");
  });
}

TEST_CASE("a coordinator counts what it answers, and its workers by what becomes of them") {
  cluster_fixture all({"w1", "w2"});
  client alice(all, "alice");
  all.running_sandbox(alice);
  all.workers.at("w2").connector->unplugged = true;
  all.cut("w2");
  const auto page = actors::metrics_page(*all.env->metrics, *all.env->health, nullptr);
  const auto has = [&](const char* line) { return page.find(line) != std::string::npos; };
  CHECK(has("dsec_requests_total{request=\"createSandbox\",code=\"ok\"} 1\n"));
  CHECK(has("dsec_connections 1\n"));
  CHECK(has("dsec_workers{state=\"connected\"} 1\n"));
  CHECK(has("dsec_workers{state=\"unreachable\"} 1\n"));
  CHECK_FALSE(has("dsec_sandboxes"));
}

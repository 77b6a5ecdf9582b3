// Idempotency keys on a coordinator, which remembers nothing of any sandbox.
#include <catch2/catch.hpp>

#include "base/ids.hpp"
#include "cluster_fixture.hpp"

using namespace dsec::test;
using namespace std::chrono_literals;
namespace base = dsec::base;
namespace proto = dsec::proto;

namespace {

client::fill withdraw() {
  return [](proto::Request::Builder r) { r.getBody().initStopSandbox(); };
}

std::size_t all_live(cluster_fixture& c) {
  std::size_t n = 0;
  for (const auto& [name, w] : c.workers) n += c.live(name);
  return n;
}

}  // namespace

TEST_CASE("a create that is sent again finds its sandbox, also after the coordinator's restart") {
  cluster_fixture c({"w1", "w2", "w3", "w4"});
  client alice(c, "alice");
  std::map<std::string, std::string> made;
  for (int i = 0; i < 12; ++i) {
    const auto key = "k" + std::to_string(i);
    made[key] = c.running_sandbox(alice, key);
  }
  for (const auto& [key, id] : made) CHECK(c.running_sandbox(alice, key) == id);
  c.kill_coordinator();
  c.start_coordinator();
  alice.reconnect();
  // At once: the workers are not there yet, and are waited for.
  for (const auto& [key, id] : made) {
    const auto again = alice.ask(create(), 30'000, key);
    for (int i = 0; i < 50 && !alice.got(again); ++i) c.advance(100ms);
    REQUIRE(alice.got(again));
    CHECK(alice.got(again)->sandbox_id == id);
  }
  CHECK(all_live(c) == 12);
}

TEST_CASE("a key leads to its sandbox where only few of many workers have the images") {
  cluster_fixture c({"w1", "w2", "w3", "w4", "w5", "w6", "w7", "w8", "w9"});
  for (const char* w : {"w1", "w2", "w4", "w5", "w7", "w8"}) c.node(w).images->none = true;
  c.advance(2s);
  client alice(c, "alice");
  std::map<std::string, std::string> made;
  for (int i = 0; i < 24; ++i) {
    const auto key = "k" + std::to_string(i);
    made[key] = c.running_sandbox(alice, key);
  }
  for (const auto& [key, id] : made) CHECK(c.running_sandbox(alice, key) == id);
  CHECK(all_live(c) == 24);
  for (const auto& [key, id] : made) CHECK(alice.call(withdraw(), 0, key).sandbox_id == id);
  CHECK(all_live(c) == 0);
}

TEST_CASE("the same key with another body is a conflict, and another principal's key another key") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  client bob(c, "bob");
  const auto id = c.running_sandbox(alice, "key");
  CHECK(alice.call(create([](auto r) { r.setHostname("other"); }), 0, "key").code == "conflict");
  CHECK(c.running_sandbox(bob, "key") != id);
}

TEST_CASE("creates of one key that come at once make one sandbox") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  client again(c, "alice");
  const auto first = alice.send(create(), 0, "key");
  const auto second = again.send(create(), 0, "key");
  const auto third = again.send(create(), 0, "key");
  c.run();
  REQUIRE(alice.got(first));
  REQUIRE(again.got(second));
  REQUIRE(again.got(third));
  CHECK(alice.got(first)->phase == "running");
  CHECK(again.got(second)->sandbox_id == alice.got(first)->sandbox_id);
  CHECK(again.got(third)->sandbox_id == alice.got(first)->sandbox_id);
  CHECK(all_live(c) == 1);
}

TEST_CASE("of creates of one key the next has its turn when the first is refused") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  c.set_memory(0);
  c.advance(2s);
  const auto first = alice.ask(create(), 3000, "key");
  const auto second = alice.ask(create(), 60'000, "key");
  c.advance(4s);
  REQUIRE(alice.got(first));
  CHECK(alice.got(first)->code == "capacity");
  CHECK_FALSE(alice.got(second));
  c.set_memory(8ULL << 30U);
  c.advance(4s);
  REQUIRE(alice.got(second));
  CHECK(alice.got(second)->phase == "running");
  CHECK(all_live(c) == 1);
}

TEST_CASE("a create whose link is lost is found again by its key, and is lost without one") {
  cluster_fixture c({"w1"});
  client alice(c, "alice");
  c.node("w1").start->held = true;
  const auto keyed = alice.ask(create(), 30'000, "key");
  const auto other = alice.ask(create(), 30'000);
  c.cut("w1");
  c.node("w1").start->held = false;
  c.advance(2s);
  REQUIRE(alice.got(keyed));
  CHECK(alice.got(keyed)->phase == "running");
  REQUIRE(alice.got(other));
  CHECK(alice.got(other)->code == "unavailable");
  CHECK(alice.got(other)->retryable);
  // Nobody has asked again for the other one.
  c.advance(10s);
  CHECK(all_live(c) == 1);
}

TEST_CASE("a worker that may know the key is waited for until it is lost") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  const auto id = c.running_sandbox(alice, "key");
  const auto edge = *base::edge_of(id);
  c.workers.at(edge).connector->unplugged = true;
  c.cut(edge);
  SECTION("it comes back") {
    const auto again = alice.ask(create(), 60'000, "key");
    c.advance(5s);
    CHECK_FALSE(alice.got(again));
    c.workers.at(edge).connector->unplugged = false;
    c.advance(2s);
    REQUIRE(alice.got(again));
    CHECK(alice.got(again)->sandbox_id == id);
  }
  SECTION("it does not") {
    const auto again = alice.ask(create(), 60'000, "key");
    c.advance(12s);
    REQUIRE(alice.got(again));
    CHECK(alice.got(again)->phase == "running");
    CHECK(*base::edge_of(alice.got(again)->sandbox_id) != edge);
  }
  SECTION("creates without a key do not wait") {
    const auto other = alice.call(create());
    CHECK(*base::edge_of(other.sandbox_id) != edge);
  }
}

TEST_CASE("a stop that names the key ends what was made with it, and the key is free") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  const auto id = c.running_sandbox(alice, "key");
  SECTION("without the id") {
    CHECK(alice.call(withdraw(), 0, "key").phase == "stopped");
  }
  SECTION("with it") {
    CHECK(alice.call(stop(id), 0, "key").phase == "stopped");
  }
  CHECK(all_live(c) == 0);
  const auto next = c.running_sandbox(alice, "key");
  CHECK(next != id);
  CHECK(c.running_sandbox(alice, "key") == next);
}

TEST_CASE("a stop that comes before its create has the create make nothing") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  CHECK(alice.call(withdraw(), 0, "key").code == "not_found");
  CHECK(alice.call(create(), 0, "key").code == "cancelled");
  CHECK(all_live(c) == 0);
}

TEST_CASE("a create that waits is withdrawn by its key wherever it waits") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  c.set_memory(0);
  c.advance(2s);
  const auto waits = alice.ask(create(), 60'000, "key");
  c.advance(GENERATE(50ms, 120ms, 450ms, 900ms, 1500ms));
  const auto told = alice.ask(withdraw(), 0, "key");
  c.advance(2s);
  REQUIRE(alice.got(told));
  REQUIRE(alice.got(waits));
  CHECK(alice.got(waits)->code == "cancelled");
  c.set_memory(8ULL << 30U);
  c.advance(3s);
  CHECK(all_live(c) == 0);
}

TEST_CASE("a create whose client is gone is withdrawn; its next connection finds it") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  for (const char* w : {"w1", "w2"}) c.node(w).start->held = true;
  alice.ask(create(), 60'000, "key");
  SECTION("nobody asks again") {
    alice.disconnect();
    for (const char* w : {"w1", "w2"}) c.node(w).start->held = false;
    c.advance(10s);
    CHECK(all_live(c) == 0);
  }
  SECTION("it comes back") {
    alice.reconnect();
    const auto again = alice.ask(create(), 60'000, "key");
    for (const char* w : {"w1", "w2"}) c.node(w).start->held = false;
    c.advance(10s);
    REQUIRE(alice.got(again));
    CHECK(alice.got(again)->phase == "running");
    CHECK(all_live(c) == 1);
  }
}

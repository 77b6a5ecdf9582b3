// Leases of clients on a whole node, in virtual time.
#include <caf/scoped_actor.hpp>
#include <catch2/catch.hpp>

#include "node_fixture.hpp"

using namespace dsec::test;
using namespace std::chrono_literals;
namespace actors = dsec::actors;
namespace base = dsec::base;
namespace proto = dsec::proto;

namespace {

std::function<void(proto::Hello::Builder)> with_lease(const char* id, std::uint32_t ms = 0) {
  return [=](proto::Hello::Builder h) {
    h.setLeaseId(id);
    h.setLeaseMs(ms);
  };
}

client::fill detached_create() {
  return create([](auto c) { c.setDetached(true); });
}

}  // namespace

TEST_CASE("a sandbox ends when its client has been gone for its lease") {
  node_fixture node;
  client alice(node, "alice", with_lease("l1", 10'000));
  const auto id = node.running_sandbox(alice);
  CHECK_FALSE(alice.call(get(id)).detached);
  node.advance(1min, 1s);
  CHECK(node.backend->live() == 1);
  alice.disconnect();
  node.advance(9900ms);
  CHECK(node.backend->live() == 1);
  node.advance(200ms);
  CHECK(node.backend->live() == 0);
  client again(node, "alice");
  const auto a = again.call(get(id));
  CHECK(a.phase == "stopped");
  CHECK(a.cause == "ttl");
  CHECK(a.detail.find("'l1'") != std::string::npos);
}

TEST_CASE("a lease without a time has the server's") {
  node_fixture node;
  client alice(node, "alice", with_lease("l1"));
  node.running_sandbox(alice);
  alice.disconnect();
  node.advance(119s, 1s);
  CHECK(node.backend->live() == 1);
  node.advance(2s, 1s);
  CHECK(node.backend->live() == 0);
}

TEST_CASE("a client that comes back in time keeps its sandboxes") {
  node_fixture node;
  client alice(node, "alice", with_lease("l1", 10'000));
  const auto id = node.running_sandbox(alice);
  for (int i = 0; i < 5; ++i) {
    alice.disconnect();
    node.advance(9s, 1s);
    alice.reconnect(with_lease("l1", 10'000));
    node.advance(30s, 1s);
  }
  CHECK(alice.call(get(id)).phase == "running");
}

TEST_CASE("the last of several connections counts") {
  node_fixture node;
  client first(node, "alice", with_lease("l1", 5000));
  client second(node, "alice", with_lease("l1", 5000));
  node.running_sandbox(first);
  first.disconnect();
  node.advance(1min, 1s);
  CHECK(node.backend->live() == 1);
  second.disconnect();
  node.advance(6s, 1s);
  CHECK(node.backend->live() == 0);
}

TEST_CASE("what is detached, or made without a lease, outlives its client") {
  node_fixture node;
  client alice(node, "alice", with_lease("l1", 1000));
  const auto id = node.running_sandbox(alice, detached_create());
  CHECK(alice.call(get(id)).detached);
  alice.disconnect();
  {
    client plain(node, "alice");
    CHECK(plain.call(get(node.running_sandbox(plain))).detached);
  }
  node.advance(10min, 10s);
  CHECK(node.backend->live() == 2);
}

TEST_CASE("a sandbox is detached and bound again on request") {
  node_fixture node;
  client alice(node, "alice", with_lease("l1", 5000));
  const auto id = node.running_sandbox(alice);
  CHECK(alice.call(set_detached(id, true)).detached);
  CHECK_FALSE(node.record(id)->lease);  // written before it was answered
  alice.disconnect();
  node.advance(1min, 1s);
  CHECK(node.backend->live() == 1);

  client plain(node, "alice");
  CHECK(plain.call(set_detached(id, false)).code == "invalid_argument");
  alice.reconnect(with_lease("l2", 3000));
  CHECK_FALSE(alice.call(set_detached(id, false)).detached);
  CHECK(node.record(id)->lease.id == "l2");
  node.advance(1min, 1s);
  CHECK(node.backend->live() == 1);
  alice.disconnect();
  node.advance(4s, 1s);
  CHECK(node.backend->live() == 0);
  CHECK(plain.call(set_detached(id, true)).code == "sandbox_failed");
}

TEST_CASE("a sandbox bound to a shorter lease than before is watched for that") {
  node_fixture node;
  client alice(node, "alice", with_lease("long", 3'600'000));
  const auto id = node.running_sandbox(alice);
  client other(node, "alice", with_lease("short", 2000));
  other.call(set_detached(id, false));
  other.disconnect();
  node.advance(3s, 1s);
  CHECK(node.backend->live() == 0);
}

TEST_CASE("a client that was started again takes what it had along to its new lease") {
  node_fixture node;
  client alice(node, "alice", with_lease("old", 5000));
  const auto id = alice.call(create(), 0, "key").sandbox_id;
  alice.disconnect();
  alice.reconnect(with_lease("new", 5000));
  CHECK(alice.call(create(), 0, "key").sandbox_id == id);
  node.advance(1min, 1s);
  CHECK(alice.call(get(id)).phase == "running");
}

TEST_CASE("a client that was started again is answered when its new lease is written") {
  node_fixture node;
  client alice(node, "alice", with_lease("old", 5000));
  const auto id = alice.call(create(), 0, "key").sandbox_id;
  alice.reconnect(with_lease("new", 5000));
  node.copy->held = true;  // where it is waited for
  const auto again = alice.ask(create(), 0, "key");
  CHECK_FALSE(alice.got(again));
  node.copy->held = false;
  node.run();
  CHECK(alice.got(again)->sandbox_id == id);
  CHECK(node.record(id)->lease.id == "new");
  node.restart();
  CHECK(node.table->sandboxes.at(id).book->record.lease.id == "new");
}

TEST_CASE("who is told that his lease could not be written has changed nothing") {
  node_fixture node;
  client alice(node, "alice", with_lease("l1", 5000));
  client other(node, "alice", with_lease("l2", 5000));
  const auto id = alice.call(create(), 0, "key").sandbox_id;
  node.write_records();
  SECTION("detached") {
    node.records->fail_from_now(true);
    CHECK(other.call(set_detached(id, true)).code == "io");
  }
  SECTION("bound") {
    node.records->fail_from_now(true);
    CHECK(other.call(set_detached(id, false)).code == "io");
  }
  SECTION("one after the other") {
    node.records->fail_from_now(true);
    node.copy->held = true;
    const auto first = other.ask(set_detached(id, true));
    const auto second = other.ask(set_detached(id, false));
    node.copy->held = false;
    node.run();
    CHECK(other.got(first)->code == "io");
    CHECK(other.got(second)->code == "io");
  }
  SECTION("asked for again") {
    node.records->fail_from_now(true);
    CHECK(other.call(create(), 0, "key").code == "io");
  }
  SECTION("nobody can wait for it") {
    node.copy->full = true;
    CHECK(other.call(set_detached(id, true)).code == "capacity");
    node.copy->full = false;
  }
  CHECK_FALSE(alice.call(get(id)).detached);
  node.records->fail_from_now(false);
  node.advance(10s, 1s);
  CHECK(node.backend->live() == 1);
  alice.disconnect();
  node.advance(6s, 1s);
  CHECK(node.backend->live() == 0);
  CHECK(other.call(get(id)).detail.find("'l1'") != std::string::npos);
}

TEST_CASE("a change of the lease that is written after one that is not counts") {
  node_fixture node;
  client alice(node, "alice", with_lease("l1", 5000));
  client other(node, "alice", with_lease("l2", 5000));
  const auto id = node.running_sandbox(alice);
  node.records->fail_from_now(true);
  CHECK(alice.call(set_detached(id, true)).code == "io");
  node.records->fail_from_now(false);
  CHECK_FALSE(other.call(set_detached(id, false)).detached);
  alice.disconnect();
  node.advance(1min, 1s);
  CHECK(node.backend->live() == 1);
  other.disconnect();
  node.advance(6s, 1s);
  CHECK(node.backend->live() == 0);
}

TEST_CASE("a detached sandbox that is asked for again stays detached") {
  node_fixture node;
  client alice(node, "alice", with_lease("old", 5000));
  const auto id = alice.call(create(), 0, "key").sandbox_id;
  alice.call(set_detached(id, true));
  alice.reconnect(with_lease("new", 5000));
  CHECK(alice.call(create(), 0, "key").detached);
}

TEST_CASE("leases outlive the edge, the reaper and the connection's crash") {
  node_fixture node;
  client alice(node, "alice", with_lease("l1", 10'000));
  node.running_sandbox(alice);
  {
    caf::scoped_actor self{*node.system, true};
    auto handle = self->request(node.root, caf::infinite, actors::get_roots{});
    node.run();
    handle.receive(
        [](const actors::roots& r) { caf::anon_send_exit(r.edge, caf::exit_reason::kill); },
        [](caf::error&) {});
    node.run();
  }
  node.advance(1min, 1s);
  CHECK(node.backend->live() == 1);
  alice.disconnect();
  node.advance(11s, 1s);
  CHECK(node.backend->live() == 0);
}

TEST_CASE("after a restart every lease counts anew") {
  node_fixture node;
  client alice(node, "alice", with_lease("l1", 10'000));
  client bob(node, "bob", with_lease("l1", 10'000));
  const auto hers = node.running_sandbox(alice);
  const auto his = node.running_sandbox(bob);
  const auto free = node.running_sandbox(bob, detached_create());
  node.write_records();
  node.restart();
  node.advance(9s, 1s);
  CHECK(node.backend->live() == 3);
  bob.reconnect(with_lease("l1", 10'000));
  node.advance(2s, 1s);
  CHECK(node.backend->live() == 2);
  CHECK(bob.call(get(his)).phase == "running");
  CHECK(bob.call(get(free)).detached);
  alice.reconnect();
  CHECK(alice.call(get(hers)).cause == "ttl");
  node.advance(1min, 1s);
  CHECK(bob.call(get(his)).phase == "running");
}

TEST_CASE("a detached sandbox is so after a restart, whatever its lease was") {
  node_fixture node;
  client alice(node, "alice", with_lease("l1", 2000));
  const auto id = node.running_sandbox(alice);
  alice.call(set_detached(id, true));
  node.restart();
  node.advance(10s, 1s);
  alice.reconnect();
  CHECK(alice.call(get(id)).phase == "running");
}

TEST_CASE("a lease that is none is refused with the greeting") {
  node_fixture node;
  for (const auto& bad :
       {with_lease("not good"), with_lease("l", 999), with_lease("l", 86'400'001)}) {
    client alice(node, "alice", bad);
    CHECK(alice.got(1)->code == "invalid_argument");
    CHECK_FALSE(alice.session->closed.empty());
  }
  CHECK(node.worker->leases->size() == 0);
}

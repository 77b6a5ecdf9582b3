// Creates that their client takes back by the key, and keys that are freed with their sandbox.
#include <catch2/catch.hpp>

#include "actors/withdrawn_keys.hpp"
#include "node_fixture.hpp"

using namespace dsec::test;
using namespace std::chrono_literals;
namespace actors = dsec::actors;
namespace base = dsec::base;
namespace proto = dsec::proto;

namespace {

/// What the create with the key of the request has made, or would make.
client::fill withdraw() {
  return stop("");
}

}  // namespace

TEST_CASE("a create that its client has given up is withdrawn, however far it is") {
  node_fixture node;
  node.config.node.max_sandboxes = 1;
  node.restart();
  client alice(node, "alice");
  std::uint64_t created = 0;
  SECTION("its images are looked up") {
    node.copy->held = true;
    created = alice.ask(create(), 0, "k");
  }
  SECTION("it waits for a place") {
    const auto first = node.running_sandbox(alice);
    created = alice.ask(create(), 0, "k");
    CHECK(alice.call(withdraw(), 0, "k").code == "not_found");
    CHECK(alice.got(created)->code == "cancelled");
    alice.call(stop(first));
  }
  SECTION("it starts") {
    node.start->held = true;
    created = alice.ask(create(), 0, "k");
  }
  const auto withdrawn = alice.ask(withdraw(), 0, "k");
  node.copy->held = node.start->held = false;
  node.run();
  CHECK(alice.got(created)->code == "cancelled");
  CHECK(alice.got(withdrawn));
  CHECK(node.backend->live() == 0);
  node.advance(1min, 1s);
  CHECK(node.backend->live() == 0);
  CHECK(alice.call(create(), 0, "k").phase == "running");
}

TEST_CASE("a sandbox is stopped by the key it was made with, and the key is free") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = alice.call(create(), 0, "k").sandbox_id;
  SECTION("at once") {}
  SECTION("when it had ended before") {
    alice.call(stop(id));
  }
  SECTION("after a restart") {
    node.write_records();
    node.restart();
    alice.reconnect();
  }
  SECTION("by a client that was started again") {
    alice.disconnect();
    alice.reconnect();
  }
  const auto a = alice.call(withdraw(), 0, "k");
  CHECK(a.sandbox_id == id);
  CHECK(a.phase == "stopped");
  CHECK(node.record(id)->body_hash.empty());  // the key is given up
  node.restart();
  alice.reconnect();
  const auto other = alice.call(create(), 0, "k");
  CHECK(other.phase == "running");
  CHECK(other.sandbox_id != id);
}

TEST_CASE("a stop that names the key of its create frees it, and no other") {
  node_fixture node;
  client alice(node, "alice");
  const auto first = alice.call(create(), 0, "k").sandbox_id;
  CHECK(alice.call(stop(first), 0, "k").phase == "stopped");
  const auto second = alice.call(create(), 0, "k").sandbox_id;
  CHECK(second != first);
  // Sent twice: it is not about the second one.
  CHECK(alice.call(stop(first), 0, "k").phase == "stopped");
  CHECK(alice.call(create(), 0, "k").sandbox_id == second);
  CHECK(alice.call(stop(second), 0, "other").phase == "stopped");
  CHECK(alice.call(create(), 0, "k").code == "sandbox_failed");
  CHECK(alice.call(stop("e0-nothing"), 0, "k").code == "not_found");
}

TEST_CASE("a create that is being withdrawn is not given to who asks again") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = alice.call(create(), 0, "k").sandbox_id;
  node.kill->held = true;
  const auto withdrawn = alice.ask(withdraw(), 0, "k");
  const auto other = alice.call(create(), 0, "k");
  CHECK(other.phase == "running");
  CHECK(other.sandbox_id != id);
  node.kill->held = false;
  node.run();
  CHECK(alice.got(withdrawn)->sandbox_id == id);
  CHECK(alice.call(create(), 0, "k").sandbox_id == other.sandbox_id);
  CHECK(node.backend->live() == 1);
}

TEST_CASE("a withdrawal is not lost with the sandbox's actor, whenever that dies") {
  bool all_done = false;
  for (int at = 0; !all_done; ++at) {
    INFO("after " << at << " steps");
    node_fixture node;
    client alice(node, "alice");
    const auto id = alice.call(create(), 0, "k").sandbox_id;
    const auto actor = node.actor_of(id);
    alice.send(withdraw(), 0, "k");
    for (int i = 0; i < at && !all_done; ++i) all_done = !node.scheduler().try_run_once();
    caf::anon_send_exit(actor, caf::exit_reason::kill);
    node.run();
    CHECK(node.backend->live() == 0);
    const auto a = alice.call(withdraw(), 0, "k");
    CHECK(a.sandbox_id == id);
    CHECK(a.phase == "stopped");
    node.write_records();
    CHECK(node.record(id)->body_hash.empty());  // the key is given up
    CHECK(alice.call(create(), 0, "k").sandbox_id != id);
  }
}

TEST_CASE("a withdrawal that is sent again is not one of a create to come") {
  node_fixture node;
  client alice(node, "alice");
  SECTION("of one that runs") {
    const auto id = alice.call(create(), 0, "k").sandbox_id;
    for (int i = 0; i < 2; ++i) {
      const auto a = alice.call(withdraw(), 0, "k");
      CHECK(a.sandbox_id == id);
      CHECK(a.phase == "stopped");
    }
  }
  SECTION("of one that ran under the dsecd before") {
    const auto id = alice.call(create(), 0, "k").sandbox_id;
    CHECK(alice.call(withdraw(), 0, "k").sandbox_id == id);
    node.write_records();
    node.restart();
    alice.reconnect();
    CHECK(alice.call(withdraw(), 0, "k").code == "not_found");
  }
  SECTION("of one that waits") {
    node.copy->held = true;
    alice.ask(create(), 0, "k");
    for (int i = 0; i < 2; ++i) CHECK(alice.call(withdraw(), 0, "k").code == "not_found");
    node.copy->held = false;
  }
  SECTION("of one that is forgotten") {
    node.config.node.retention_seconds = 1;
    node.restart();
    alice.reconnect();
    alice.call(create(), 0, "k");
    alice.call(withdraw(), 0, "k");
    node.advance(2s);
    CHECK(node.table->keys.empty());
    CHECK(alice.call(withdraw(), 0, "k").code == "not_found");
  }
  CHECK(alice.call(create(), 0, "k").phase == "running");
}

TEST_CASE("a withdrawal is about the create that waits, if its key was withdrawn before") {
  node_fixture node;
  node.config.node.max_sandboxes = 1;
  node.restart();
  client alice(node, "alice");
  const auto id = alice.call(create(), 0, "k").sandbox_id;
  node.kill->held = true;
  const auto withdrawn = alice.ask(withdraw(), 0, "k");
  const auto other = alice.ask(create(), 0, "k");
  const auto again = alice.ask(create(), 0, "k");
  CHECK_FALSE(alice.got(other));
  CHECK(alice.call(withdraw(), 0, "k").code == "not_found");
  CHECK(alice.got(other)->code == "cancelled");
  CHECK(alice.got(again)->code == "cancelled");
  node.kill->held = false;
  node.run();
  CHECK(alice.got(withdrawn)->sandbox_id == id);
  CHECK(node.backend->live() == 0);
}

TEST_CASE("a create that arrives after its withdrawal makes nothing") {
  node_fixture node;
  client alice(node, "alice");
  client same(node, "alice");
  CHECK(alice.call(withdraw(), 0, "k").code == "not_found");
  const auto a = same.call(create(), 0, "k");
  CHECK(a.code == "cancelled");
  CHECK(a.object == "k");
  CHECK(node.backend->started().empty());
  CHECK(same.call(create(), 0, "other").phase == "running");
  node.advance(actors::withdrawn_keys::kept);
  CHECK(same.call(create(), 0, "k").phase == "running");
}

TEST_CASE("nobody withdraws what is somebody else's") {
  node_fixture node;
  client alice(node, "alice");
  client bob(node, "bob");
  const auto id = alice.call(create(), 0, "k").sandbox_id;
  CHECK(bob.call(withdraw(), 0, "k").code == "not_found");
  CHECK(bob.call(stop(id), 0, "k").code == "not_found");
  CHECK(alice.call(create(), 0, "k").sandbox_id == id);
  CHECK(alice.call(withdraw(), 0, "").code == "invalid_argument");
  CHECK(alice.call(withdraw(), 0, std::string(257, 'k')).code == "invalid_argument");
}

TEST_CASE("withdrawn keys are forgotten in time, and do not pile up") {
  actors::withdrawn_keys keys;
  actors::withdrawn_keys::time_point now{1000s};
  const auto key = [](std::size_t i) {
    return actors::edge_table::key{"alice", std::to_string(i)};
  };
  keys.add(key(0), now);
  keys.add(key(0), now + 1s);
  CHECK(keys.contains(key(0), now + actors::withdrawn_keys::kept - 1s));
  CHECK_FALSE(keys.contains(key(0), now + actors::withdrawn_keys::kept));
  now += 1h;
  for (std::size_t i = 0; i <= actors::withdrawn_keys::most; ++i) keys.add(key(i), now);
  CHECK_FALSE(keys.contains(key(0), now));
  CHECK(keys.contains(key(1), now));
  CHECK(keys.contains(key(actors::withdrawn_keys::most), now));
}

TEST_CASE("an id or key with a NUL byte is refused, not cut") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = alice.call(create(), 0, "k").sandbox_id;
  alice.call(exec(id, "c1"));
  const auto with_nul = [](const std::string& text) {
    return text + std::string(1, '\0') + "tail";
  };
  const auto refused = [&](const std::function<void(proto::Request::Builder)>& f) {
    const auto a = alice.call(f);
    return a.code == "invalid_argument" && a.message.find("NUL") != std::string::npos;
  };
  const auto nul_id = with_nul(id), nul_command = with_nul("c1"), nul_key = with_nul("k");
  const auto whole = [](const std::string& text) {
    return capnp::Text::Reader(text.c_str(), text.size());
  };
  CHECK(refused([&](proto::Request::Builder r) {
    r.getBody().initGetSandbox().setSandboxId(whole(nul_id));
  }));
  CHECK(refused([&](proto::Request::Builder r) {
    r.getBody().initStopSandbox().setSandboxId(whole(nul_id));
  }));
  CHECK(refused([&](proto::Request::Builder r) {
    auto c = r.getBody().initGetCommand();
    c.setSandboxId(whole(id));
    c.setCommandId(whole(nul_command));
  }));
  CHECK(refused([&](proto::Request::Builder r) {
    auto c = r.getBody().initKillCommand();
    c.setSandboxId(whole(id));
    c.setCommandId(whole(nul_command));
  }));
  CHECK(refused([&](proto::Request::Builder r) {
    auto o = r.getBody().initReadOutput();
    o.setSandboxId(whole(id));
    o.setCommandId(whole(nul_command));
  }));
  CHECK(refused([&](proto::Request::Builder r) {
    create()(r);
    r.setIdempotencyKey(whole(nul_key));
  }));
  CHECK(refused([&](proto::Request::Builder r) {
    withdraw()(r);
    r.setIdempotencyKey(whole(nul_key));
  }));
  CHECK(alice.call(get(id)).phase == "running");
}

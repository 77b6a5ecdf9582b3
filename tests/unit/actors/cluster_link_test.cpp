// The link between worker and coordinator: who is let in, and what is left when it or either end of
// it is lost.
#include <caf/scoped_actor.hpp>
#include <catch2/catch.hpp>

#include "actors/uplink.hpp"
#include "base/ids.hpp"
#include "cluster_fixture.hpp"

using namespace dsec::test;
using namespace std::chrono_literals;
namespace actors = dsec::actors;
namespace base = dsec::base;
namespace proto = dsec::proto;

namespace {

auto with_lease(std::uint32_t ms) {
  return [ms](proto::Hello::Builder h) {
    h.setLeaseId("l1");
    h.setLeaseMs(ms);
  };
}

bool unhealthy_about(cluster_fixture& c, const std::string& worker, const std::string& what) {
  return c.node(worker).worker->health->healthz().json.find(what) != std::string::npos;
}

}  // namespace

TEST_CASE("a worker with another secret is not let in, and says why on both sides") {
  cluster_fixture c({});
  c.add("w1", "w1", "id", std::string(40, 'x'));
  c.advance(3s);
  CHECK(c.health().find("w1") == std::string::npos);
  // It is the worker that stops first: it does not speak to a coordinator that proves nothing.
  CHECK(unhealthy_about(c, "w1", "does not know this worker's secret"));
  client alice(c, "alice");
  const auto asked = alice.ask(create(), 5000);
  c.advance(6s);
  CHECK(alice.got(asked)->code == "deadline_exceeded");
}

TEST_CASE("a second worker of a name is refused while the first is there") {
  cluster_fixture c({"w1"});
  c.add("other", "w1", "another-id", c.secret);
  c.advance(3s);
  CHECK(unhealthy_about(c, "other", "already_exists: another worker named 'w1' is connected"));
  client alice(c, "alice");
  c.running_sandbox(alice);
  CHECK(c.live("w1") == 1);
  CHECK(c.live("other") == 0);
}

TEST_CASE("a worker that was started again takes the place of its old link") {
  cluster_fixture c({"w1"});
  client alice(c, "alice");
  const auto id = c.running_sandbox(alice);
  auto old = c.workers.at("w1").connector->coordinator_end;
  // The old link looks alive from the coordinator's side: nothing of its end has come.
  c.workers.at("w1").connector->worker_end->other.reset();
  c.node("w1").restart();
  c.advance(2s);
  CHECK(old->ended);
  CHECK(alice.call(get(id)).phase == "running");
}

TEST_CASE("who says nothing that proves anything is hung up on") {
  cluster_fixture c({});
  const auto open = [&] {
    auto worker = std::make_shared<pipe_end>();
    auto ours = std::make_shared<pipe_end>();
    ours->other = worker;
    worker->other = ours;
    ours->handler = actors::open_node(
        *c.system, {ours, "peer", std::make_shared<const std::string>(c.secret), c.cluster->get()});
    c.run();
    return std::pair(ours, worker);
  };
  SECTION("nothing at all") {
    const auto [ours, worker] = open();
    c.advance(9s, 500ms);
    CHECK_FALSE(ours->ended);
    c.advance(2s);
    CHECK(ours->ended);
  }
  SECTION("a report instead of a hello") {
    const auto [ours, worker] = open();
    capnp::MallocMessageBuilder m;
    m.initRoot<proto::PeerMessage>().initBody().initReport();
    worker->send(proto::frame::from_builder(m));
    c.run();
    CHECK(ours->ended);
  }
  SECTION("a proof that is none") {
    const auto [ours, worker] = open();
    proto::peer_hello hello;
    hello.edge = "w1";
    hello.node_id = "id";
    hello.nonce = proto::peer_nonce();
    worker->send(proto::hello_frame(hello));
    c.run();
    CHECK(ours->sent == 1);
    capnp::MallocMessageBuilder m;
    m.initRoot<proto::PeerMessage>().initBody().setProof("0");
    worker->send(proto::frame::from_builder(m));
    c.run();
    CHECK(ours->ended);
    CHECK(ours->closed_because.find("does not know this coordinator's secret") !=
          std::string::npos);
  }
}

TEST_CASE("who does not believe a certificate is asked again, but not at once") {
  cluster_fixture c({"w1"});
  auto& link = *c.workers.at("w1").connector;
  link.unplugged = true;
  link.refusal.code = dsec::base::errc::unauthenticated;
  c.cut("w1");
  c.advance(200ms);
  const auto tried = link.tries;
  c.advance(4s);
  CHECK(link.tries == tried);
  link.refusal.code = dsec::base::errc::unavailable;
  c.advance(1500ms);
  CHECK(link.tries > tried);
  const auto again = link.tries;
  c.advance(4s);
  CHECK(link.tries > again + 2);
}

TEST_CASE("a request that is under way when the link is lost is asked again over the next") {
  cluster_fixture c({"w1"}, holding());
  client alice(c, "alice");
  const auto id = c.running_sandbox(alice);
  const auto waits = alice.ask(exec(id, "c1", [](auto e) { e.initArgv(1).set(0, "hold"); }));
  c.cut("w1");
  CHECK_FALSE(alice.got(waits));
  c.advance(2s);
  // The command was not started again: it is still the one that runs.
  CHECK(alice.call(list_commands(id)).ids == std::vector<std::string>{"c1"});
  CHECK(alice.call(kill_command(id, "c1")).kind == "command");
  c.run();
  REQUIRE(alice.got(waits));
  CHECK(alice.got(waits)->state == "ended");
}

TEST_CASE("requests about a worker that does not come back are unavailable, by name") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  const auto first = c.running_sandbox(alice);
  const auto second = c.running_sandbox(alice);
  const auto edge = *base::edge_of(first);
  c.workers.at(edge).connector->unplugged = true;
  c.cut(edge);
  const auto asked = alice.ask(get(first));
  CHECK_FALSE(alice.got(asked));
  c.advance(6s);
  REQUIRE(alice.got(asked));
  CHECK(alice.got(asked)->code == "unavailable");
  CHECK(alice.got(asked)->retryable);
  CHECK(alice.got(asked)->message.find("edge '" + edge + "'") != std::string::npos);
  CHECK(c.health().find("\"" + edge + "\":\"unreachable\"") != std::string::npos);
  // Nobody waits for one that has been gone for long, and others go on.
  c.advance(10s);
  CHECK(alice.call(get(first)).code == "unavailable");
  CHECK(alice.call(get(second)).phase == "running");
  c.workers.at(edge).connector->unplugged = false;
  c.advance(2s);
  CHECK(alice.call(get(first)).phase == "running");
}

TEST_CASE("a coordinator that was started again finds everything where it was") {
  cluster_fixture c({"w1", "w2"}, holding());
  client alice(c, "alice", with_lease(2000));
  const auto first = c.running_sandbox(alice);
  const auto second = c.running_sandbox(alice);
  alice.call(exec(first, "c1", [](auto e) {
    e.initArgv(1).set(0, "hold");
    e.setWait(false);
  }));
  c.kill_coordinator();
  c.advance(5s);  // longer than the lease: nobody could come back
  c.start_coordinator();
  alice.reconnect(with_lease(2000));
  // At once: its workers are still on their way.
  const auto asked = alice.ask(get(first));
  c.advance(3s);
  REQUIRE(alice.got(asked));
  CHECK(alice.got(asked)->phase == "running");
  CHECK(alice.call(get(second)).phase == "running");
  CHECK(alice.call(get_command(first, "c1")).state == "running");
  CHECK(c.node("w1").backend->started().size() + c.node("w2").backend->started().size() == 2);
}

TEST_CASE("a lease that is held at the coordinator keeps sandboxes of every worker") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice", with_lease(1000));
  c.running_sandbox(alice);
  c.running_sandbox(alice);
  c.advance(5s);
  CHECK(c.live("w1") + c.live("w2") == 2);
  SECTION("until its client is gone") {
    alice.disconnect();
    c.advance(3s);
    CHECK(c.live("w1") + c.live("w2") == 0);
  }
  SECTION("also over a new link") {
    c.cut("w1");
    c.advance(60s, 500ms);
    CHECK(c.live("w1") + c.live("w2") == 2);
    alice.disconnect();
    c.advance(3s);
    CHECK(c.live("w1") + c.live("w2") == 0);
  }
  SECTION("and when the coordinator never comes back, only for so long") {
    c.kill_coordinator();
    c.advance(60s, 500ms);
    CHECK(c.live("w1") + c.live("w2") == 2);
    c.advance(actors::link_leases::longest_grace, 1s);
    CHECK(c.live("w1") + c.live("w2") == 0);
  }
}

TEST_CASE("a worker that was killed is taken over by its next start; others notice nothing") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  const auto first = c.running_sandbox(alice);
  const auto second = c.running_sandbox(alice);
  const auto edge = *base::edge_of(first);
  c.node(edge).kill9();
  c.run();
  CHECK(alice.call(get(second)).phase == "running");
  const auto asked = alice.ask(get(first));
  c.node(edge).start_again();
  c.advance(2s);
  REQUIRE(alice.got(asked));
  CHECK(alice.got(asked)->phase == "running");
}

TEST_CASE("actors of the coordinator that die are started again, and workers come back to them") {
  cluster_fixture c({"w1"});
  client alice(c, "alice");
  const auto id = c.running_sandbox(alice);
  SECTION("the cluster") {
    caf::anon_send_exit(c.cluster->get(), caf::exit_reason::kill);
    c.run();
    c.advance(2s);
    CHECK(alice.call(get(id)).phase == "running");
  }
  SECTION("the gateway") {
    caf::anon_send_exit(c.slot->get(), caf::exit_reason::kill);
    c.run();
    alice.reconnect();
    CHECK(alice.call(get(id)).phase == "running");
  }
}

TEST_CASE("a worker's edge that is started again is asked over the old link") {
  cluster_fixture c({"w1"});
  client alice(c, "alice");
  const auto id = c.running_sandbox(alice);
  CHECK(alice.call(get(id)).phase == "running");
  caf::scoped_actor self{*c.node("w1").system, true};
  auto asked = self->request(c.node("w1").root, caf::infinite, actors::get_roots{});
  c.run();
  asked.receive([](const actors::roots& r) { caf::anon_send_exit(r.edge, caf::exit_reason::kill); },
                [](caf::error&) { FAIL(); });
  c.run();
  CHECK(c.running_sandbox(alice, "key-1") != id);
  CHECK(alice.call(get(id)).phase == "running");
}

TEST_CASE("a worker that answers pings and nothing else is cut off, and creates go elsewhere") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  auto& w1 = c.workers.at("w1");
  auto link = w1.connector->coordinator_end;
  w1.frozen = true;
  const auto keyed = alice.ask(create(), 60'000, "key");
  c.advance(9s);
  CHECK_FALSE(link->ended);
  CHECK_FALSE(alice.got(keyed));  // it may have made it
  c.advance(2s);
  CHECK(link->ended);
  CHECK(link->closed_because.find("does not report") != std::string::npos);
  c.advance(11s);
  REQUIRE(alice.got(keyed));
  CHECK(*base::edge_of(alice.got(keyed)->sandbox_id) == "w2");
  w1.frozen = false;
  c.advance(3s);
  CHECK(c.health().find("\"w1\":\"connected\"") != std::string::npos);
}

TEST_CASE("a worker whose copy pool is stuck says so, keeps its link and gets no creates") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  auto link = c.workers.at("w1").connector->coordinator_end;
  SECTION("its threads") {
    c.node("w1").copy->held = true;
  }
  SECTION("its queue") {
    c.node("w1").copy->full = true;
  }
  c.advance(20s, 500ms);
  CHECK_FALSE(link->ended);
  for (int i = 0; i < 4; ++i) c.running_sandbox(alice);
  CHECK(c.live("w1") == 0);
  c.node("w1").copy->held = false;
  c.node("w1").copy->full = false;
  c.advance(2s);
  for (int i = 0; i < 4; ++i) c.running_sandbox(alice);
  CHECK(c.live("w1") > 0);
}

TEST_CASE("tries to connect are spread out, sooner or later a second apart") {
  CHECK(actors::back_off(0, 0.0) == 25ms);
  CHECK(actors::back_off(0, 0.99) < 50ms);
  CHECK(actors::back_off(20, 0.0) == 500ms);
  CHECK(actors::back_off(20, 0.999) <= 1000ms);
  CHECK(actors::back_off(4'000'000'000U, 0.5) <= 1000ms);
}

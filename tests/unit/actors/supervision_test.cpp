// Actors that die: what goes on, who is told what.
#include <caf/scoped_actor.hpp>
#include <catch2/catch.hpp>

#include "actors/edge.hpp"
#include "node_fixture.hpp"

using namespace dsec::test;
using namespace std::chrono_literals;
namespace actors = dsec::actors;
namespace base = dsec::base;

namespace {

void hold(dsec::proto::Exec::Builder e) {
  e.initArgv(1).set(0, "hold");
}

void crash(node_fixture& node, const actors::sandbox_actor& who) {
  caf::anon_send_exit(who, caf::exit_reason::kill);
  node.run();
}

actors::roots roots_of(node_fixture& node) {
  caf::scoped_actor self{*node.system, true};
  auto handle = self->request(node.root, caf::infinite, actors::get_roots{});
  node.run();
  actors::roots out;
  handle.receive([&](const actors::roots& r) { out = r; }, [](caf::error&) {});
  return out;
}

}  // namespace

TEST_CASE("a sandbox outlives its actor, and the next one knows its commands") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  alice.call(exec(id, "done"));
  alice.call(exec(id, "going", [](auto e) {
    hold(e);
    e.setWait(false);
  }));
  const auto before = node.actor_of(id);
  crash(node, before);
  CHECK(node.actor_of(id) != before);
  CHECK(node.backend->live() == 1);
  CHECK(alice.call(get(id)).phase == "running");
  CHECK(alice.call(get_command(id, "done")).state == "ended");
  CHECK(alice.call(get_command(id, "going")).state == "running");
  CHECK(alice.call(exec(id, "new")).state == "ended");
}

TEST_CASE("a command that ends while no actor is there is not lost") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  alice.call(exec(id, "c1", [](auto e) {
    hold(e);
    e.setWait(false);
  }));
  caf::anon_send_exit(node.actor_of(id), caf::exit_reason::kill);
  node.backend->finish(id, "c1", {.refused = {}, .exit_code = 9, .out = {}, .err = {}});
  node.run();
  CHECK(alice.call(get_command(id, "c1")).exit_code == 9);
}

TEST_CASE("whoever waits for a command when the actor dies goes on waiting at the next one") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  const auto waiting = alice.ask(exec(id, "c1", hold));
  crash(node, node.actor_of(id));
  CHECK_FALSE(alice.got(waiting));
  node.backend->finish(id, "c1", {.refused = {}, .exit_code = 4, .out = {}, .err = {}});
  node.run();
  CHECK(alice.got(waiting)->exit_code == 4);
  const auto steps = node.backend->steps();
  CHECK(std::count(steps.begin(), steps.end(), "exec " + id + " c1") == 1);
}

TEST_CASE(
    "an actor that dies while its sandbox starts is replaced by one that finishes the start") {
  node_fixture node;
  client alice(node, "alice");
  node.start->held = true;
  const auto created = alice.ask(create());
  const auto id = alice.call(list()).ids.at(0);
  crash(node, node.actor_of(id));
  CHECK(alice.got(created)->code == "unavailable");
  node.start->held = false;
  node.run();
  CHECK(alice.call(get(id)).phase == "running");
  CHECK(node.backend->started().size() == 1);
}

TEST_CASE("an actor that dies while its sandbox stops is replaced by one that finishes the stop") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  node.kill->held = true;
  const auto stopped = alice.ask(stop(id));
  crash(node, node.actor_of(id));
  node.kill->held = false;
  node.run();
  CHECK(alice.got(stopped)->phase == "stopped");
  CHECK(node.backend->live() == 0);
}

TEST_CASE("a sandbox whose actors keep dying is given up, and nothing of it is left") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  for (std::size_t i = 0; i <= actors::restart_budget::most; ++i) crash(node, node.actor_of(id));
  CHECK(node.backend->live() == 0);
  CHECK(alice.call(get(id)).code == "sandbox_failed");
  CHECK(alice.call(create()).phase == "running");
  node.write_records();
  CHECK(node.record(id)->phase == base::phase::failed);
}

TEST_CASE("a given-up sandbox that asked for a snapshot is shown to the hook before it is ended") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(
      alice, create([](auto c) { c.setOnFailure(dsec::proto::OnFailure::SNAPSHOT); }));
  std::size_t alive = 0;
  node.on_keep = [&] { alive = node.backend->live(); };
  for (std::size_t i = 0; i <= actors::restart_budget::most; ++i) crash(node, node.actor_of(id));
  REQUIRE(node.kept.size() == 1);
  CHECK(node.kept[0].id == id);
  CHECK(node.kept[0].phase == base::phase::failed);
  CHECK(alive == 1);
  CHECK(node.backend->live() == 0);
}

TEST_CASE("a node that gave up a sandbox is unhealthy for as long as its record is kept") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = alice.call(create(), 0, "key").sandbox_id;
  CHECK(node.worker->health->healthz().good);
  for (std::size_t i = 0; i <= actors::restart_budget::most; ++i) crash(node, node.actor_of(id));
  const auto health = node.worker->health->healthz();
  CHECK_FALSE(health.good);
  CHECK(health.json.find("1 given up") != std::string::npos);
  // Its key makes a new one, in this process and the next.
  const auto next = alice.call(create(), 0, "key").sandbox_id;
  CHECK(next != id);
  node.write_records();
  node.restart();
  alice.reconnect();
  CHECK(alice.call(create(), 0, "key").sandbox_id == next);
  CHECK(alice.call(get(id)).cause == "backend");
  CHECK(node.worker->health->healthz().good);
}

TEST_CASE("a given-up sandbox that is forgotten is no reason to be unhealthy any more") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  for (std::size_t i = 0; i <= actors::restart_budget::most; ++i) crash(node, node.actor_of(id));
  CHECK_FALSE(node.worker->health->healthz().good);
  node.advance(61min, 1min);
  CHECK(node.worker->health->healthz().good);
}

TEST_CASE("a given-up sandbox that cannot be ended keeps its place and is tried again") {
  bool stuck = true;
  node_fixture node(fails_while(stuck, "stop", "a dead disk"));
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  for (std::size_t i = 0; i <= actors::restart_budget::most; ++i) crash(node, node.actor_of(id));
  node.advance(5s);
  CHECK(node.table->sandboxes.at(id).live);
  stuck = false;
  node.advance(2s);
  CHECK_FALSE(node.table->sandboxes.at(id).live);
  CHECK(node.backend->live() == 0);
}

TEST_CASE("a reaper that keeps dying takes the edge along, and in the end the node gives up") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  const auto kill_reaper = [&] {
    const auto edge = roots_of(node).edge;
    auto* at = static_cast<actors::edge_self::stateful_pointer<actors::edge_state>>(
        caf::actor_cast<caf::abstract_actor*>(edge));
    caf::anon_send_exit(at->state.watcher, caf::exit_reason::kill);
    node.run();
    return edge;
  };
  const auto first = kill_reaper();
  CHECK(roots_of(node).edge == first);
  for (std::size_t i = 0; i < actors::restart_budget::most; ++i) kill_reaper();
  CHECK(roots_of(node).edge != first);
  CHECK(alice.call(get(id)).phase == "running");
  for (std::size_t i = 0; i < 50 && node.given_up.empty(); ++i) kill_reaper();
  CHECK(node.given_up.size() == 1);
  // No edge is left to tell it, as in a process that ends itself.
  caf::anon_send_exit(node.table->sandboxes.at(id).actor, caf::exit_reason::user_shutdown);
}

TEST_CASE("a given-up sandbox is ended though the edge that gave it up dies first") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  alice.call(exec(id, "c1", [](auto e) {
    hold(e);
    e.setWait(false);
  }));
  node.kill->held = true;
  for (std::size_t i = 0; i <= actors::restart_budget::most; ++i) crash(node, node.actor_of(id));
  CHECK(node.table->sandboxes.at(id).book->status.commands() == 0);
  node.kill->jobs.clear();  // it died before its job was handed over
  caf::anon_send_exit(roots_of(node).edge, caf::exit_reason::kill);
  node.run();
  node.kill->held = false;
  node.run();
  CHECK(node.backend->live() == 0);
  CHECK_FALSE(node.table->sandboxes.at(id).live);
}

TEST_CASE("a given-up sandbox that finds the kill pool full is ended later") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  node.kill->full = true;
  for (std::size_t i = 0; i <= actors::restart_budget::most; ++i) crash(node, node.actor_of(id));
  CHECK(node.backend->live() == 1);
  node.kill->full = false;
  node.advance(2s);
  CHECK(node.backend->live() == 0);
  CHECK_FALSE(node.table->sandboxes.at(id).live);
}

TEST_CASE("a start that is under way when its sandbox is given up is ended all the same") {
  node_fixture node;
  client alice(node, "alice");
  node.start->held = true;
  alice.ask(create());
  const auto id = alice.call(list()).ids.at(0);
  // The job has looked at its cancel flag already.
  auto book = node.table->sandboxes.at(id).book;
  for (std::size_t i = 0; i <= actors::restart_budget::most; ++i) crash(node, node.actor_of(id));
  book->start_cancelled = false;
  node.start->held = false;
  node.run();
  CHECK(node.backend->started().size() == 1);
  CHECK(node.backend->live() == 0);
}

TEST_CASE("crashes far apart do not add up") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  for (std::size_t i = 0; i < 3 * actors::restart_budget::most; ++i) {
    crash(node, node.actor_of(id));
    node.advance(20s, 5s);
  }
  CHECK(alice.call(get(id)).phase == "running");
}

TEST_CASE("sandboxes and time limits outlive the edge") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice, create([](auto c) { c.setAbsoluteTtlSeconds(100); }));
  const auto waiting = alice.ask(exec(id, "c1", hold), 600'000);
  const auto actor = node.actor_of(id);
  caf::anon_send_exit(roots_of(node).edge, caf::exit_reason::kill);
  node.run();
  CHECK(node.actor_of(id) == actor);
  CHECK(node.backend->live() == 1);
  CHECK(alice.call(list()).ids == std::vector<std::string>{id});
  CHECK(alice.call(create()).phase == "running");
  node.advance(101s, 1s);
  CHECK(alice.got(waiting)->code == "sandbox_failed");
  CHECK(alice.call(get(id)).cause == "ttl");
}

TEST_CASE("a create that waits when the edge dies is told to try again") {
  node_fixture node;
  client alice(node, "alice");
  node.copy->held = true;
  const auto waiting = alice.ask(create());
  caf::anon_send_exit(roots_of(node).edge, caf::exit_reason::kill);
  node.run();
  CHECK(alice.got(waiting)->code == "unavailable");
  CHECK(alice.got(waiting)->retryable);
  node.copy->held = false;
  node.run();
  CHECK(alice.call(list()).ids.empty());
}

TEST_CASE("a place taken before the edge died still counts afterwards") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  caf::anon_send_exit(roots_of(node).edge, caf::exit_reason::kill);
  node.run();
  alice.call(stop(id));
  CHECK(node.backend->live() == 0);
  CHECK_FALSE(node.table->sandboxes.at(id).live);
}

TEST_CASE("connections of a dead gateway close, new ones are served") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  caf::anon_send_exit(roots_of(node).gateway, caf::exit_reason::kill);
  node.run();
  CHECK_FALSE(alice.session->left.empty());
  client again(node, "alice");
  CHECK(again.call(get(id)).phase == "running");
}

TEST_CASE(
    "a connection that comes in while the gateway dies is closed, for its client to come back") {
  node_fixture node;
  const auto to = node.connections();  // the listener's thread has found the one that lives
  caf::anon_send_exit(roots_of(node).gateway, caf::exit_reason::kill);
  node.run();
  const auto session = std::make_shared<recording_session>();
  const auto handler =
      actors::open_connection(*node.system, to, session, {"alice", "127.0.0.1:1", "k-alice"});
  node.run();
  CHECK(session->left == std::vector<std::string>{"the gateway is restarting"});
  handler.closed();
  node.run();
}

TEST_CASE("a node whose core keeps dying gives up") {
  node_fixture node;
  for (std::size_t i = 0; i <= actors::restart_budget::most; ++i) {
    caf::anon_send_exit(roots_of(node).gateway, caf::exit_reason::kill);
    node.run();
  }
  REQUIRE(node.given_up.size() == 1);
  CHECK(node.given_up[0].find("gateway") != std::string::npos);
}

TEST_CASE("what an earlier process left running is lost, what it was stopping is stopped") {
  const auto left = [](const char* id, base::phase p) {
    actors::sandbox_record r;
    r.id = id;
    r.owner = "alice";
    r.phase = p;
    return r;
  };
  node_fixture node({}, {left("e0-a", base::phase::running), left("e0-b", base::phase::stopping),
                         left("e0-c", base::phase::preparing), left("e0-d", base::phase::stopped)});
  client alice(node, "alice");
  CHECK(alice.call(get("e0-a")).phase == "failed");
  CHECK(alice.call(get("e0-a")).cause == "lost");
  CHECK(alice.call(get("e0-b")).phase == "stopped");
  CHECK(alice.call(get("e0-c")).cause == "lost");
  CHECK(alice.call(get("e0-d")).cause == "none");
  CHECK(alice.call(list()).ids.size() == 4);
  node.write_records();
  CHECK(node.record("e0-a")->phase == base::phase::failed);
}

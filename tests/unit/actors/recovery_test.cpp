// A node that is killed in every phase of a sandbox, and the next one over the same store and host.
#include <algorithm>
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "actors/orphans.hpp"
#include "node_fixture.hpp"

using namespace dsec::test;
using namespace std::chrono_literals;
namespace base = dsec::base;
namespace backends = dsec::backends;
namespace fake = dsec::fake;

namespace {

long count(const node_fixture& node, const std::string& step) {
  const auto steps = node.backend->steps();
  return std::count(steps.begin(), steps.end(), step);
}

answer get_by(client& c, const std::string& id) {
  c.reconnect();
  return c.call(get(id));
}

}  // namespace

TEST_CASE("a running sandbox goes on under the next node") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  node.write_records();
  node.restart();
  const auto a = get_by(alice, id);
  CHECK(a.phase == "running");
  CHECK(a.cause == "none");
  CHECK(alice.call(exec(id, "c1")).state == "ended");
  CHECK(alice.call(stop(id)).phase == "stopped");
  CHECK(node.backend->live() == 0);
}

TEST_CASE("a sandbox outlives many nodes") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  node.write_records();
  for (int i = 0; i < 5; ++i) {
    node.restart();
    CHECK(get_by(alice, id).phase == "running");
    CHECK(alice.call(exec(id, "c" + std::to_string(i))).state == "ended");
  }
  CHECK(alice.call(list_commands(id)).ids.size() == 5);
}

TEST_CASE("a create that was recorded but had not begun is lost, and its key is free") {
  node_fixture node;
  client alice(node, "alice");
  node.start->held = true;
  alice.ask(create(), 0, "key");
  const auto id = alice.call(list()).ids.at(0);
  node.write_records();
  node.restart();
  const auto a = get_by(alice, id);
  CHECK(a.phase == "failed");
  CHECK(a.cause == "lost");
  const auto again = alice.call(create(), 0, "key");
  CHECK(again.phase == "running");
  CHECK(again.sandbox_id != id);
  CHECK(node.backend->live() == 1);
}

TEST_CASE("a create that was not recorded is as if it had never been") {
  node_fixture node;
  client alice(node, "alice");
  node.start->held = true;
  node.records->hold(true);
  alice.ask(create(), 0, "key");
  const auto id = alice.call(list()).ids.at(0);
  node.restart();
  CHECK(get_by(alice, id).code == "not_found");
  CHECK(alice.call(create(), 0, "key").phase == "running");
  CHECK(node.backend->live() == 1);
}

TEST_CASE("a start that was done but not told is told by the next node, to whoever asks again") {
  node_fixture node;
  client alice(node, "alice");
  node.start->held = true;
  alice.ask(create(), 0, "key");
  const auto id = alice.call(list()).ids.at(0);
  REQUIRE(node.start->run_one());  // and nobody hears of it
  node.restart();
  alice.reconnect();
  const auto a = alice.call(create(), 0, "key");
  CHECK(a.sandbox_id == id);
  CHECK(a.phase == "running");
  CHECK(count(node, "start " + id) == 1);
  node.write_records();
  CHECK(node.record(id)->phase == base::phase::running);
}

TEST_CASE("a sandbox without a record is ended: nobody was told of it") {
  node_fixture node;
  backends::start_spec spec;
  spec.sandbox_id = "e0-unrecorded";
  auto started = node.backend->start(spec, backends::event_sink{{}, {}, {}, {}});
  REQUIRE(started);
  node.restart();
  CHECK(count(node, "end e0-unrecorded") == 1);
  CHECK(node.backend->live() == 0);
}

TEST_CASE("a stop that was under way is carried on") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  alice.call(exec(id, "c1", [](auto e) {
    e.initArgv(1).set(0, "hold");
    e.setWait(false);
  }));
  node.kill->held = true;
  alice.ask(stop(id));
  node.write_records();
  SECTION("before it did anything") {}
  SECTION("after it had done all") {
    REQUIRE(node.kill->run_one());
  }
  node.restart();
  CHECK(node.backend->live() == 0);
  const auto a = get_by(alice, id);
  CHECK(a.phase == "stopped");
  CHECK(a.cause == "killed");
  CHECK(alice.call(get_command(id, "c1")).state == "lost");
  CHECK(alice.call(stop(id)).phase == "stopped");
}

TEST_CASE("a stop of one that never ran leaves its key free, after a restart too") {
  node_fixture node;
  client alice(node, "alice");
  node.start->held = true;
  alice.ask(create(), 0, "key");
  const auto id = alice.call(list()).ids.at(0);
  alice.ask(stop(id));
  node.write_records();
  CHECK(node.record(id)->phase == base::phase::stopping);
  node.restart();
  CHECK(get_by(alice, id).phase == "stopped");
  const auto again = alice.call(create(), 0, "key");
  CHECK(again.phase == "running");
  CHECK(again.sandbox_id != id);
}

TEST_CASE("what ended while no node was there has failed, and what it left can be read") {
  node_fixture node({.run = [](const backends::exec_spec&) {
    fake::fate f;
    f.out = "hello";
    f.exit_code = 3;
    return f;
  }});
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  alice.call(exec(id, "c1"));
  node.write_records();
  node.kill9();
  std::string cause;
  SECTION("its aether ended") {
    node.backend->fail(id, base::cause::backend, "aether ended");
    cause = "backend";
  }
  SECTION("launcher and aether ended") {
    node.backend->host()->lose(id);
    cause = "lost";
  }
  node.start_again();
  const auto a = get_by(alice, id);
  CHECK(a.phase == "failed");
  CHECK(a.cause == cause);
  CHECK_FALSE(a.detail.empty());
  CHECK(alice.call(get_command(id, "c1")).exit_code == 3);
  CHECK(alice.call(read_output(id, "c1")).out == "hello");
  CHECK(alice.call(exec(id, "c2")).code == "sandbox_failed");
  // Its place is free again once its remains are gone.
  CHECK_FALSE(node.table->sandboxes.at(id).live);
  CHECK(count(node, "stop " + id) == 1);
}

TEST_CASE("a sandbox of which nothing is left is lost") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  node.write_records();
  node.kill9();
  node.backend->host()->vanish(id);
  node.start_again();
  CHECK(get_by(alice, id).cause == "lost");
  node.write_records();
  CHECK(node.record(id)->phase == base::phase::failed);
}

TEST_CASE("a sandbox that may live and cannot be taken over is left, with all others") {
  std::string broken;
  node_fixture node(
      {.run = {},
       .on_step = [&](std::string_view step, const std::string& id) -> base::result<void> {
         if (step == "recover" && id == broken) return base::fail(base::errc::io, "no disk");
         return {};
       }});
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  const auto other = node.running_sandbox(alice);
  node.write_records();
  broken = GENERATE_COPY(id, other);
  node.kill9();
  const auto refused = node.try_start_again();
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == base::errc::unavailable);
  CHECK(refused.error().message.find(broken) != std::string::npos);
  CHECK(refused.error().message.find("no disk") != std::string::npos);
  CHECK(node.backend->live() == 2);
  broken.clear();
  node.start_again();
  for (const auto& each : {id, other}) {
    CHECK(get_by(alice, each).phase == "running");
    CHECK(alice.call(exec(each, "c1")).state == "ended");
  }
}

TEST_CASE("a sandbox whose command log cannot be read is sealed, and the others are served") {
  std::string broken;
  node_fixture node(
      {.run = {},
       .on_step = [&](std::string_view step, const std::string& id) -> base::result<void> {
         if (step == "log" && id == broken) return base::fail(base::errc::io, "bad sector");
         return {};
       }});
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  const auto other = node.running_sandbox(alice);
  REQUIRE(alice.call(exec(id, "c1")).state == "ended");
  node.write_records();
  broken = id;
  node.restart();
  CHECK(get_by(alice, other).phase == "running");
  CHECK(alice.call(exec(other, "c1")).state == "ended");
  CHECK(get_by(alice, id).phase == "running");
  for (const auto& request :
       {exec(id, "c1"), exec(id, "c2"), get_command(id, "c1"), kill_command(id, "c1"),
        list_commands(id), read_file(id, "/f"), write_file(id, "/f", "x"), read_output(id, "c1")}) {
    const auto refused = alice.call(request);
    CHECK(refused.code == "io");
    CHECK(refused.message.find("bad sector") != std::string::npos);
  }
  auto health = node.worker->health->healthz();
  CHECK_FALSE(health.good);
  CHECK(health.json.find(id) != std::string::npos);
  SECTION("it is stopped") {
    CHECK(alice.call(stop(id)).phase == "stopped");
    CHECK(node.worker->health->healthz().good);
    CHECK(node.backend->live() == 1);
  }
  SECTION("its log can be read again by the next dsecd") {
    broken.clear();
    node.restart();
    CHECK(get_by(alice, id).phase == "running");
    CHECK(alice.call(get_command(id, "c1")).state == "ended");
    CHECK(alice.call(exec(id, "c2")).state == "ended");
    CHECK(node.worker->health->healthz().good);
  }
}

TEST_CASE("a clean-up that a node was killed in is finished by the next") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  node.kill->held = true;
  node.backend->fail(id, base::cause::oom, "out of memory");
  node.run();
  node.write_records();
  node.restart();
  CHECK(count(node, "stop " + id) == 1);
  const auto a = get_by(alice, id);
  CHECK(a.phase == "failed");
  CHECK(a.cause == "oom");
}

TEST_CASE("remains that do not go keep their place and are tried again") {
  bool stuck = true;
  node_fixture node(fails_while(stuck, "stop", "a dead disk"));
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  CHECK(alice.call(stop(id)).phase == "failed");
  node.write_records();
  node.restart();
  CHECK(node.table->sandboxes.at(id).live);
  stuck = false;
  node.advance(11s, 1s);
  CHECK_FALSE(node.table->sandboxes.at(id).live);
  CHECK(node.backend->live() == 0);
}

TEST_CASE("leftovers that cannot be ended are reported and tried again, sandboxes are served") {
  bool broken = false;
  node_fixture node(
      {.run = {}, .on_step = [&](std::string_view step, const std::string&) -> base::result<void> {
         if (broken && step == "end_unrecovered")
           return base::fail(base::errc::io, "a group stays");
         return {};
       }});
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  node.write_records();
  broken = true;
  node.restart();
  CHECK(get_by(alice, id).phase == "running");
  const auto health = node.worker->health->healthz();
  CHECK_FALSE(health.good);
  CHECK(health.json.find("a group stays") != std::string::npos);
  const auto refused = alice.call(create());
  CHECK(refused.code == "unavailable");
  CHECK(refused.retryable);
  broken = false;
  node.advance(5s);
  CHECK(node.worker->health->healthz().good);
  CHECK(alice.call(create()).phase == "running");
}

TEST_CASE("many sandboxes are taken over, each with its own") {
  node_fixture node;
  node.memory = {1ULL << 40U, 1ULL << 40U};
  client alice(node, "alice");
  std::vector<std::string> ids;
  for (int i = 0; i < 100; ++i) {
    ids.push_back(node.running_sandbox(alice));
    alice.call(exec(ids.back(), "c" + std::to_string(i)));
  }
  node.write_records();
  node.restart();
  alice.reconnect();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    CHECK(alice.call(get_command(ids[i], "c" + std::to_string(i))).state == "ended");
  }
  CHECK(node.backend->live() == 100);
}

TEST_CASE("admission counts what was taken over") {
  node_fixture node;
  node.config.node.max_sandboxes = 2;
  node.restart();
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  node.running_sandbox(alice);
  node.write_records();
  node.restart();
  alice.reconnect();
  const auto third = alice.ask(create());
  CHECK_FALSE(alice.got(third));
  alice.call(stop(id));
  node.advance(1s);
  CHECK(alice.got(third)->phase == "running");
}

TEST_CASE("time to live goes on over a restart, idle time begins anew") {
  node_fixture node;
  client alice(node, "alice");
  const auto absolute =
      node.running_sandbox(alice, create([](auto c) { c.setAbsoluteTtlSeconds(100); }));
  const auto idle = node.running_sandbox(alice, create([](auto c) { c.setIdleTtlSeconds(60); }));
  node.advance(50s, 1s);
  node.write_records();
  node.restart();
  node.advance(49s, 1s);
  CHECK(node.backend->live() == 2);
  node.advance(2s, 1s);
  CHECK(node.backend->live() == 1);
  node.advance(8s, 1s);
  CHECK(node.backend->live() == 1);
  node.advance(2s, 1s);
  CHECK(node.backend->live() == 0);
  CHECK(get_by(alice, absolute).cause == "ttl");
  CHECK(alice.call(get(idle)).cause == "ttl");
}

TEST_CASE("a time to live that ran out while no node was there ends the sandbox at once") {
  dsec::actors::sandbox_record r;
  r.id = "e0-old";
  r.owner = "alice";
  r.phase = base::phase::running;
  r.created_unix_ms = 1'700'000'000'000 - 1'000'000;
  r.spec.absolute_ttl_seconds = 500;
  node_fixture node;
  backends::start_spec spec;
  spec.sandbox_id = r.id;
  auto started = node.backend->start(spec, backends::event_sink{{}, {}, {}, {}});
  node.worker->writer->save(std::make_shared<const dsec::actors::sandbox_record>(r));
  node.write_records();
  node.restart();
  node.advance(1s);
  CHECK(node.backend->live() == 0);
  client alice(node, "alice");
  CHECK(alice.call(get(r.id)).cause == "ttl");
}

TEST_CASE("idempotency keys hold over a restart") {
  node_fixture node;
  client alice(node, "alice");
  client bob(node, "bob");
  const auto id = alice.call(create(), 0, "key").sandbox_id;
  node.write_records();
  node.restart();
  alice.reconnect();
  bob.reconnect();
  CHECK(alice.call(create(), 0, "key").sandbox_id == id);
  CHECK(alice.call(create([](auto c) { c.setMemoryMb(64); }), 0, "key").code == "conflict");
  const auto his = bob.call(create(), 0, "key");
  CHECK(his.phase == "running");
  CHECK(his.sandbox_id != id);
  // Twice in flight.
  node.start->held = true;
  const auto first = alice.ask(create(), 0, "other");
  const auto second = alice.ask(create(), 0, "other");
  node.start->held = false;
  node.run();
  CHECK(alice.got(first)->sandbox_id == alice.got(second)->sandbox_id);
}

TEST_CASE("a create whose client is gone when the node is killed is not withdrawn by the next") {
  node_fixture node;
  client alice(node, "alice");
  node.start->held = true;
  alice.ask(create(), 0, "key");
  const auto id = alice.call(list()).ids.at(0);
  alice.disconnect();
  REQUIRE(node.start->run_one());
  node.restart();
  node.advance(1min, 1s);
  CHECK(get_by(alice, id).phase == "running");
}

TEST_CASE("an ended sandbox is kept for its retention and then leaves nothing") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  alice.call(exec(id, "c1"));
  alice.call(stop(id));
  node.write_records();
  node.restart();
  alice.reconnect();
  CHECK(alice.call(get_command(id, "c1")).state == "ended");
  node.advance(61min, 1min);
  CHECK(alice.call(get(id)).code == "not_found");
  CHECK(node.backend->host()->known() == 0);
}

TEST_CASE("an ended sandbox that nobody asked for leaves nothing either") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  alice.call(stop(id));
  node.write_records();
  node.restart();
  node.advance(61min, 1min);
  CHECK(node.backend->host()->known() == 0);
}

TEST_CASE("a node that leaves ends nothing, answers who waits and takes nothing new") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  const auto waiting = alice.ask(exec(id, "c1", [](auto e) { e.initArgv(1).set(0, "hold"); }));
  node.start->held = true;
  const auto created = alice.ask(create(), 0, "key");
  const auto session = alice.session;
  node.leave();
  CHECK(alice.got(waiting)->code == "unavailable");
  CHECK(alice.got(waiting)->retryable);
  CHECK(alice.got(created)->code == "unavailable");
  CHECK_FALSE(session->closed.empty());
  CHECK(node.backend->live() == 1);
  CHECK(node.record(id)->phase == base::phase::running);
  node.backend->finish(id, "c1", {.refused = {}, .exit_code = 4, .out = {}, .err = {}});
  node.start_again();
  alice.reconnect();
  CHECK(alice.call(exec(id, "c1")).exit_code == 4);
  CHECK(count(node, "exec " + id + " c1") == 1);
  CHECK(alice.call(create(), 0, "key").phase == "running");
}

#include <algorithm>
#include <catch2/catch.hpp>

#include "node_fixture.hpp"

using namespace dsec::test;
using namespace std::chrono_literals;
namespace base = dsec::base;

namespace {

client::fill create_idle(std::uint32_t seconds) {
  return create([=](auto c) { c.setIdleTtlSeconds(seconds); });
}

}  // namespace

TEST_CASE("a sandbox that nobody uses is stopped after its idle time") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice, create_idle(60));
  node.advance(59s, 1s);
  CHECK(node.backend->live() == 1);
  node.advance(2s, 1s);
  CHECK(node.backend->live() == 0);
  const auto a = alice.call(get(id));
  CHECK(a.phase == "stopped");
  CHECK(a.cause == "ttl");
}

TEST_CASE("every request starts the idle time anew") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice, create_idle(60));
  for (int i = 0; i < 5; ++i) {
    node.advance(50s, 1s);
    CHECK(alice.call(get(id)).phase == "running");
  }
  node.advance(61s, 1s);
  CHECK(alice.call(get(id)).cause == "ttl");
}

TEST_CASE("a running command keeps its sandbox from being idle") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice, create_idle(10));
  alice.ask(exec(id, "c1", [](auto e) {
    e.initArgv(1).set(0, "hold");
    e.setWait(false);
  }));
  node.advance(100s, 1s);
  CHECK(node.backend->live() == 1);
  node.backend->finish(id, "c1");
  node.run();
  node.advance(21s, 1s);
  CHECK(node.backend->live() == 0);
  CHECK(alice.call(get(id)).cause == "ttl");
}

TEST_CASE("the absolute limit counts however busy a sandbox is") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice, create([](auto c) { c.setAbsoluteTtlSeconds(30); }));
  const auto waiting =
      alice.ask(exec(id, "c1", [](auto e) { e.initArgv(1).set(0, "hold"); }), 600'000);
  node.advance(29s, 1s);
  CHECK(node.backend->live() == 1);
  node.advance(2s, 1s);
  CHECK(node.backend->live() == 0);
  CHECK(alice.got(waiting)->code == "sandbox_failed");
  CHECK(alice.got(waiting)->message.find("ttl") != std::string::npos);
  const auto a = alice.call(get(id));
  CHECK(a.cause == "ttl");
  CHECK(a.detail.find("30 s") != std::string::npos);
}

TEST_CASE("a sandbox without limits lives on") {
  node_fixture node;
  client alice(node, "alice");
  node.running_sandbox(alice);
  node.advance(10h, 10min);
  CHECK(node.backend->live() == 1);
}

TEST_CASE("an ended sandbox is listed until its retention is over, then nothing of it is left") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  alice.call(exec(id, "c1"));
  alice.call(stop(id));
  node.advance(59min, 1min);
  CHECK(alice.call(get(id)).phase == "stopped");
  CHECK(alice.call(get_command(id, "c1")).state == "ended");
  node.advance(2min, 1min);
  CHECK(alice.call(get(id)).code == "not_found");
  CHECK(alice.call(list()).ids.empty());
  node.write_records();
  CHECK_FALSE(node.record(id));
  // Its files go as a whole, not command by command, which would write to what is being deleted.
  CHECK(node.backend->host()->known() == 0);
  const auto steps = node.backend->steps();
  CHECK(std::count(steps.begin(), steps.end(), "forget " + id + " c1") == 0);
}

TEST_CASE("retention goes on where an earlier process left it") {
  dsec::actors::sandbox_record r;
  r.id = "e0-aaaaaaaaaaaaaaaa";
  r.owner = "alice";
  r.phase = base::phase::stopped;
  r.ended_unix_ms = 1'700'000'000'000 - 3'000'000;  // 50 minutes before the test's clock begins
  node_fixture node({}, {r});
  client alice(node, "alice");
  node.advance(9min, 1min);
  CHECK(alice.call(get(r.id)).phase == "stopped");
  node.advance(2min, 1min);
  CHECK(alice.call(get(r.id)).code == "not_found");
}

#include <algorithm>
#include <catch2/catch.hpp>
#include <thread>
#include <utility>

#include "base/failpoint.hpp"
#include "node_fixture.hpp"

using namespace dsec::test;
using namespace std::chrono_literals;
namespace base = dsec::base;
namespace fake = dsec::fake;

namespace {

fake::script failing(std::string step) {
  return {.run = {},
          .on_step = [step](std::string_view s, const std::string&) -> base::result<void> {
            if (s == step) return base::fail(base::errc::io, "no space left");
            return {};
          }};
}

}  // namespace

TEST_CASE("a create answers when the sandbox runs, and its record is written") {
  node_fixture node;
  client alice(node, "alice");
  const auto a = alice.call(create([](auto c) { c.setHostname("box"); }));
  CHECK(a.kind == "sandbox");
  CHECK(a.phase == "running");
  CHECK(a.cause == "none");
  CHECK(a.sandbox_id.rfind("e0-", 0) == 0);
  REQUIRE(node.backend->started().size() == 1);
  CHECK(node.backend->started()[0].hostname == "box");
  CHECK(node.backend->started()[0].layers.size() == 1);
  node.write_records();
  CHECK(node.record(a.sandbox_id)->phase == base::phase::running);
  CHECK(node.record(a.sandbox_id)->owner == "alice");
}

TEST_CASE("the record is written while the backend starts") {
  std::optional<base::phase> seen;
  memory_records* records = nullptr;
  node_fixture node(
      {.run = {},
       .on_step = [&](std::string_view step, const std::string& id) -> base::result<void> {
         const auto give_up = std::chrono::steady_clock::now() + 10s;
         while (step == "start" && !seen && std::chrono::steady_clock::now() < give_up) {
           if (const auto r = records->find(id)) seen = r->phase;
         }
         return {};
       }});
  records = node.records.get();
  client alice(node, "alice");
  CHECK(alice.call(create()).phase == "running");
  CHECK(seen.has_value());
}

TEST_CASE("a create is answered when its record is written, not before") {
  node_fixture node;
  client alice(node, "alice");
  node.records->hold(true);
  std::size_t answers = 1;
  std::thread store([&, before = alice.session->sent.size()] {
    const auto give_up = std::chrono::steady_clock::now() + 10s;
    while (node.backend->live() == 0 && std::chrono::steady_clock::now() < give_up) {
      std::this_thread::yield();
    }
    answers = alice.session->sent.size() - before;
    node.records->hold(false);
  });
  const auto a = alice.call(create());
  store.join();
  CHECK(answers == 0);
  CHECK(a.phase == "running");
  CHECK(node.record(a.sandbox_id).has_value());
}

TEST_CASE("a store that cannot be written fails the create and leaves nothing") {
  node_fixture node;
  client alice(node, "alice");
  node.records->fail_from_now(true);
  const auto a = alice.call(create());
  CHECK(a.code == "io");
  CHECK(node.backend->live() == 0);
  node.records->fail_from_now(false);
  CHECK(alice.call(create()).phase == "running");
}

TEST_CASE("a backend that cannot start is told to the client, and the record says failed") {
  node_fixture node(failing("start"));
  client alice(node, "alice");
  const auto a = alice.call(create());
  CHECK(a.code == "io");
  CHECK(a.retryable);
  const auto all = alice.call(list());
  REQUIRE(all.ids.size() == 1);
  const auto s = alice.call(get(all.ids[0]));
  CHECK(s.phase == "failed");
  CHECK(s.cause == "backend");
  CHECK(s.detail.find("no space left") != std::string::npos);
}

#ifdef DSEC_FAILPOINTS
TEST_CASE("an injected failure before the start leaves nothing running") {
  node_fixture node;
  client alice(node, "alice");
  base::failpoint::arm("sandbox.start", "error");
  CHECK(alice.call(create()).code == "internal");
  CHECK(node.backend->live() == 0);
  CHECK(alice.call(create()).phase == "running");
}
#endif

TEST_CASE("stop answers when nothing is left, and says who did it") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  const auto a = alice.call(stop(id));
  CHECK(a.phase == "stopped");
  CHECK(a.cause == "killed");
  CHECK(node.backend->live() == 0);
}

TEST_CASE("stopping twice at once and once more later is one stop") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  node.kill->held = true;
  const auto first = alice.ask(stop(id));
  const auto second = alice.ask(stop(id));
  CHECK_FALSE(alice.got(first));
  CHECK(alice.call(get(id)).phase == "stopping");
  node.kill->held = false;
  node.run();
  CHECK(alice.got(first)->phase == "stopped");
  CHECK(alice.got(second)->phase == "stopped");
  CHECK(alice.call(stop(id)).phase == "stopped");
  const auto steps = node.backend->steps();
  CHECK(std::count(steps.begin(), steps.end(), "stop " + id) == 1);
}

TEST_CASE("stop before the start job begins cancels it") {
  node_fixture node;
  client alice(node, "alice");
  node.start->held = true;
  const auto created = alice.ask(create());
  const auto id = alice.call(list()).ids.at(0);
  CHECK(alice.call(get(id)).phase == "preparing");
  const auto stopped = alice.ask(stop(id));
  CHECK(alice.got(created)->code == "cancelled");
  CHECK_FALSE(alice.got(stopped));
  node.start->held = false;
  node.run();
  CHECK(alice.got(stopped)->phase == "stopped");
  CHECK(node.backend->started().empty());
}

TEST_CASE("stop while the backend starts ends what it started") {
  std::function<void()> in_start;
  node_fixture node(
      {.run = {}, .on_step = [&](std::string_view step, const std::string&) -> base::result<void> {
         if (step == "start" && in_start) std::exchange(in_start, nullptr)();
         return {};
       }});
  client alice(node, "alice");
  std::uint64_t stopped = 0;
  in_start = [&] {
    node.start->held = true;  // this job is under way
    const auto id = alice.call(list()).ids.at(0);
    CHECK(alice.call(get(id)).phase == "starting");
    stopped = alice.ask(stop(id));
    node.start->held = false;
  };
  const auto created = alice.ask(create());
  CHECK(alice.got(created)->code == "cancelled");
  CHECK(alice.got(stopped)->phase == "stopped");
  CHECK(node.backend->started().size() == 1);
  CHECK(node.backend->live() == 0);
}

TEST_CASE("a stop that leaves something behind says so") {
  node_fixture node(failing("stop"));
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  const auto a = alice.call(stop(id));
  CHECK(a.phase == "failed");
  CHECK(a.cause == "killed");
  CHECK(a.detail.find("no space left") != std::string::npos);
}

TEST_CASE("a sandbox that dies by itself has failed with the cause it died of") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  node.backend->fail(id, base::cause::oom, "aether was killed");
  node.run();
  const auto a = alice.call(get(id));
  CHECK(a.phase == "failed");
  CHECK(a.cause == "oom");
  CHECK(a.detail == "aether was killed");
  CHECK(node.backend->live() == 0);
  const auto refused = alice.call(exec(id, "c1"));
  CHECK(refused.code == "sandbox_failed");
  CHECK(refused.message.find("oom") != std::string::npos);
  CHECK(alice.call(stop(id)).phase == "failed");
}

TEST_CASE("an incomplete stop is answered, tried again, and keeps its place until it is through") {
  int stops = 0;
  node_fixture node(
      {.run = {}, .on_step = [&](std::string_view step, const std::string&) -> base::result<void> {
         if (step == "stop" && ++stops < 3) return base::fail(base::errc::io, "it does not die");
         return {};
       }});
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  const auto a = alice.call(stop(id));
  CHECK(a.phase == "failed");
  CHECK(a.detail == "stopped on request; clean-up: it does not die (io)");
  CHECK(stops == 1);
  CHECK(node.table->sandboxes.at(id).live);
  node.advance(10s, 1s);
  CHECK(stops == 2);
  CHECK(node.table->sandboxes.at(id).live);
  node.advance(10s, 1s);
  CHECK(stops == 3);
  CHECK_FALSE(node.table->sandboxes.at(id).live);
  CHECK(alice.call(get(id)).detail == a.detail);
  node.advance(20s, 1s);
  CHECK(stops == 3);
}

TEST_CASE("the first cause of death wins") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  node.kill->held = true;
  const auto stopped = alice.ask(stop(id));
  node.backend->fail(id, base::cause::backend, "channel closed");
  node.run();
  node.kill->held = false;
  node.run();
  CHECK(alice.got(stopped)->cause == "killed");
  CHECK(alice.got(stopped)->phase == "stopped");
}

TEST_CASE("a create that is not running by its deadline is undone") {
  node_fixture node;
  client alice(node, "alice");
  node.start->held = true;
  const auto created = alice.ask(create(), 5000);
  node.advance(4s);
  CHECK_FALSE(alice.got(created));
  node.advance(1s);
  CHECK(alice.got(created)->code == "deadline_exceeded");
  node.start->held = false;
  node.run();
  CHECK(node.backend->live() == 0);
  const auto id = alice.call(list()).ids.at(0);
  CHECK(alice.call(get(id)).phase == "stopped");
}

TEST_CASE("a stop that takes too long goes on after its deadline") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  node.kill->held = true;
  const auto stopped = alice.ask(stop(id), 1000);
  node.advance(2s);
  CHECK(alice.got(stopped)->code == "deadline_exceeded");
  node.kill->held = false;
  node.run();
  CHECK(alice.call(get(id)).phase == "stopped");
}

TEST_CASE("somebody else's sandbox does not exist") {
  node_fixture node;
  client alice(node, "alice");
  client bob(node, "bob");
  const auto id = node.running_sandbox(alice);
  CHECK(bob.call(get(id)).code == "not_found");
  CHECK(bob.call(stop(id)).code == "not_found");
  CHECK(bob.call(exec(id, "c1")).code == "not_found");
  CHECK(bob.call(list()).ids.empty());
  CHECK(alice.call(list()).ids == std::vector<std::string>{id});
}

TEST_CASE("a network rule that would allow something comes back as a warning") {
  node_fixture node;
  client alice(node, "alice");
  const auto a = alice.call(create([](auto c) {
    auto rules = c.initNetworkRules(2);
    rules[0].setService("pypi");
    rules[0].setAllow(true);
    rules[1].setService("npm");
  }));
  REQUIRE(a.warnings.size() == 1);
  CHECK(a.warnings[0].find("pypi") != std::string::npos);
}

TEST_CASE("what failed and asked for a snapshot is shown to the hook before anything of it goes") {
  int stops = 0;
  node_fixture node(
      {.run = {}, .on_step = [&](std::string_view step, const std::string&) -> base::result<void> {
         if (step == "stop" && ++stops == 1) return base::fail(base::errc::io, "it does not die");
         return {};
       }});
  client alice(node, "alice");
  const auto id = node.running_sandbox(
      alice, create([](auto c) { c.setOnFailure(dsec::proto::OnFailure::SNAPSHOT); }));
  std::optional<base::phase> written;
  node.on_keep = [&] {
    CHECK(stops == 0);
    if (const auto r = node.record(id)) written = r->phase;
  };
  node.backend->fail(id, base::cause::oom, "");
  node.run();
  REQUIRE(node.kept.size() == 1);
  CHECK(node.kept[0].id == id);
  CHECK(node.kept[0].cause == base::cause::oom);
  CHECK(written == base::phase::failed);
  node.advance(15s, 1s);
  CHECK(stops == 2);
  CHECK(node.kept.size() == 1);
}

TEST_CASE("nothing is kept of a sandbox that did not ask for it, or did not fail by itself") {
  node_fixture node;
  client alice(node, "alice");
  const auto plain = node.running_sandbox(alice);
  node.backend->fail(plain, base::cause::oom, "");
  node.run();
  const auto stopped = node.running_sandbox(
      alice, create([](auto c) { c.setOnFailure(dsec::proto::OnFailure::SNAPSHOT); }));
  CHECK(alice.call(stop(stopped)).phase == "stopped");
  CHECK(node.kept.empty());
}

TEST_CASE("a stop that leaves something behind is no failure to keep anything of") {
  node_fixture node(failing("stop"));
  client alice(node, "alice");
  const auto id = node.running_sandbox(
      alice, create([](auto c) { c.setOnFailure(dsec::proto::OnFailure::SNAPSHOT); }));
  CHECK(alice.call(stop(id)).phase == "failed");
  node.advance(15s, 1s);
  CHECK(node.kept.empty());
}

TEST_CASE("stopping a sandbox that has just failed waits until nothing of it is left") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  node.kill->held = true;
  node.backend->fail(id, base::cause::oom, "");
  node.run();
  const auto stopped = alice.ask(stop(id));
  CHECK_FALSE(alice.got(stopped));
  node.kill->held = false;
  node.run();
  CHECK(alice.got(stopped)->phase == "failed");
  CHECK(node.backend->live() == 0);
}

TEST_CASE("a sandbox that dies before its start was told has failed, and nothing of it is left") {
  node_fixture node;
  client alice(node, "alice");
  node.start->held = true;
  const auto created = alice.ask(create(), 0, "k1");
  const auto id = alice.call(list()).ids.at(0);
  node.table->sandboxes.at(id).book->events.add(
      dsec::actors::instance_gone{base::cause::oom, "died at once"});
  node.start->held = false;
  node.run();
  REQUIRE(alice.got(created));
  CHECK(alice.got(created)->code == "sandbox_failed");
  CHECK(alice.got(created)->message.find("died at once") != std::string::npos);
  CHECK(node.backend->live() == 0);
  CHECK(alice.call(get(id)).phase == "failed");
  CHECK(alice.call(get(id)).cause == "oom");
  CHECK(alice.call(create(), 0, "k1").phase == "running");  // the key is free again
}

TEST_CASE("a record keeps no environment once its sandbox has ended") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice, create([](auto c) {
                                         auto env = c.initEnv(1);
                                         env[0].setName("BIG");
                                         env[0].setValue(std::string(100'000, 'x').c_str());
                                       }));
  CHECK_FALSE(node.table->sandboxes.at(id).book->record.spec.env.empty());
  alice.call(stop(id));
  CHECK(node.table->sandboxes.at(id).book->record.spec.env.empty());
  CHECK(node.table->sandboxes.at(id).book->status.record()->spec.env.empty());
  node.write_records();
  CHECK(node.record(id)->spec.env.empty());
}

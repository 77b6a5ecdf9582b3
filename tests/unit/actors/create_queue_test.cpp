// Admission, queueing, idempotency keys: what the edge does before there is a sandbox.
#include <catch2/catch.hpp>

#include "node_fixture.hpp"

using namespace dsec::test;
using namespace std::chrono_literals;
namespace base = dsec::base;
namespace fake = dsec::fake;

namespace {

constexpr std::uint64_t mib = 1ULL << 20U;

/// Room for `n` sandboxes.
struct small_node : node_fixture {
  explicit small_node(std::uint32_t n) {
    auto changed = std::make_shared<dsec::actors::worker>(*worker);
    changed->config.node.max_sandboxes = n;
    restart_with(changed);
  }
  void restart_with(const std::shared_ptr<dsec::actors::worker>& changed) {
    caf::anon_send_exit(root, caf::exit_reason::user_shutdown);
    run();
    worker = changed;
    root = system->spawn(dsec::actors::root_supervisor,
                         dsec::actors::root_args{worker, table, slot, [](const std::string&) {}});
    run();
  }
};

}  // namespace

TEST_CASE("a create that does not fit waits, and is admitted when a place is free") {
  small_node node(1);
  client alice(node, "alice");
  const auto first = node.running_sandbox(alice);
  const auto second = alice.ask(create());
  CHECK_FALSE(alice.got(second));
  alice.call(stop(first));
  CHECK(alice.got(second)->phase == "running");
}

TEST_CASE("a create that never fits before its deadline is told what was scarce") {
  small_node node(1);
  client alice(node, "alice");
  node.running_sandbox(alice);
  const auto second = alice.ask(create(), 10'000);
  node.advance(9s);
  CHECK_FALSE(alice.got(second));
  node.advance(1s);
  const auto a = alice.got(second);
  REQUIRE(a);
  CHECK(a->code == "capacity");
  CHECK(a->retryable);
  CHECK(a->object == "slots");
  CHECK(a->message.find("slots: all 1 are taken") != std::string::npos);
  CHECK(alice.call(list()).ids.size() == 1);
}

TEST_CASE("memory in use holds creates up until it is free again") {
  node_fixture node;
  client alice(node, "alice");
  node.memory.available = 1024 * mib;  // the reserve
  node.advance(200ms);
  const auto waiting = alice.ask(create(), 60'000);
  node.advance(5s);
  CHECK_FALSE(alice.got(waiting));
  node.memory.available = 4096 * mib;
  node.advance(1s);
  CHECK(alice.got(waiting)->phase == "running");
  node.memory.available = 1024 * mib;
  node.advance(200ms);
  const auto refused = alice.ask(create(), 2000);
  node.advance(2s);
  CHECK(alice.got(refused)->code == "capacity");
  CHECK(alice.got(refused)->object == "memory");
  CHECK(alice.got(refused)->message.find("memory: ") != std::string::npos);
}

TEST_CASE("a limit beyond what this node could ever give is refused at once") {
  node_fixture node;
  client alice(node, "alice");
  const auto a = alice.call(create([](auto c) { c.setMemoryMb(1'000'000); }));
  CHECK(a.code == "invalid_argument");
  CHECK_FALSE(a.retryable);
  CHECK(a.message.find("memory limits") != std::string::npos);
}

TEST_CASE("waiting creates of two principals take turns") {
  small_node node(1);
  client greedy(node, "greedy");
  client modest(node, "modest");
  auto running = node.running_sandbox(greedy);
  const auto g1 = greedy.ask(create());
  const auto g2 = greedy.ask(create());
  const auto m1 = modest.ask(create());
  greedy.call(stop(running));
  REQUIRE(greedy.got(g1));
  greedy.call(stop(greedy.got(g1)->sandbox_id));
  CHECK_FALSE(greedy.got(g2));
  REQUIRE(modest.got(m1));
  modest.call(stop(modest.got(m1)->sandbox_id));
  CHECK(greedy.got(g2)->phase == "running");
}

TEST_CASE("an unknown image is not found, and nothing is left of the create") {
  node_fixture node;
  client alice(node, "alice");
  const auto a = alice.call(create([](auto c) { c.setImage("nope:1"); }));
  CHECK(a.code == "not_found");
  CHECK(a.message.find("nope:1") != std::string::npos);
  CHECK(alice.call(list()).ids.empty());
}

TEST_CASE("a create with a key that was used gives the same sandbox") {
  node_fixture node;
  client alice(node, "alice");
  const auto first = alice.call(create(), 0, "k");
  const auto again = alice.call(create(), 0, "k");
  CHECK(again.sandbox_id == first.sandbox_id);
  CHECK(node.backend->started().size() == 1);
}

TEST_CASE("a create with the key of a sandbox that has ended is told so") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = alice.call(create(), 0, "k").sandbox_id;
  std::string why;
  SECTION("it was stopped") {
    alice.call(stop(id));
    why = "stopped on request";
  }
  SECTION("it is being stopped") {
    node.kill->held = true;
    alice.ask(stop(id));
    why = "stopped on request";
  }
  SECTION("it died") {
    node.backend->fail(id, base::cause::oom, "out of memory");
    node.run();
    why = "out of memory";
  }
  SECTION("before a restart") {
    alice.call(stop(id));
    node.write_records();
    node.restart();
    alice.reconnect();
    why = "stopped on request";
  }
  const auto again = alice.call(create(), 0, "k");
  CHECK(again.code == "sandbox_failed");
  CHECK_FALSE(again.retryable);
  CHECK(again.object == id);
  CHECK(again.message.find(why) != std::string::npos);
  CHECK(again.message.find("another idempotency key") != std::string::npos);
  CHECK(node.backend->started().size() == 1);
}

TEST_CASE("a second create with the same key waits for the first") {
  node_fixture node;
  client alice(node, "alice");
  SECTION("while images are looked up") {
    node.copy->held = true;
  }
  SECTION("while the backend starts it") {
    node.start->held = true;
  }
  const auto first = alice.ask(create(), 0, "k");
  const auto second = alice.ask(create(), 0, "k");
  CHECK_FALSE(alice.got(first));
  CHECK_FALSE(alice.got(second));
  node.copy->held = node.start->held = false;
  node.run();
  CHECK(alice.got(first)->phase == "running");
  CHECK(alice.got(second)->sandbox_id == alice.got(first)->sandbox_id);
  CHECK(node.backend->started().size() == 1);
}

TEST_CASE("the same key with another body is a conflict, before and after it ran") {
  node_fixture node;
  client alice(node, "alice");
  const auto other = create([](auto c) { c.setCpuMillis(500); });
  node.copy->held = true;
  const auto first = alice.ask(create(), 0, "k");
  CHECK(alice.call(other, 0, "k").code == "conflict");
  node.copy->held = false;
  node.run();
  CHECK(alice.got(first)->phase == "running");
  CHECK(alice.call(other, 0, "k").code == "conflict");
}

TEST_CASE("keys belong to their principal") {
  node_fixture node;
  client alice(node, "alice");
  client bob(node, "bob");
  const auto hers = alice.call(create(), 0, "k");
  const auto his = bob.call(create([](auto c) { c.setCpuMillis(500); }), 0, "k");
  CHECK(his.kind == "sandbox");
  CHECK(his.sandbox_id != hers.sandbox_id);
}

TEST_CASE("a create that failed leaves its key free for another try") {
  bool fail = true;
  node_fixture node(fails_while(fail, "start", "no space left"));
  client alice(node, "alice");
  CHECK(alice.call(create(), 0, "k").code == "io");
  CHECK(alice.call(create([](auto c) { c.setImage("nope:1"); }), 0, "k").code == "not_found");
  fail = false;
  CHECK(alice.call(create(), 0, "k").phase == "running");
}

TEST_CASE("of two waiters with one key each is held to its own deadline") {
  small_node node(1);
  client alice(node, "alice");
  const auto first = node.running_sandbox(alice);
  const auto hasty = alice.ask(create(), 1000, "k");
  const auto patient = alice.ask(create(), 60'000, "k");
  node.advance(2s);
  CHECK(alice.got(hasty)->code == "capacity");
  CHECK_FALSE(alice.got(patient));
  alice.call(stop(first));
  CHECK(alice.got(patient)->phase == "running");
}

TEST_CASE("a client that goes while its create waits still gets its sandbox made") {
  small_node node(1);
  client alice(node, "alice");
  client other(node, "alice");
  const auto first = node.running_sandbox(alice);
  other.ask(create(), 60'000, "k");
  other.disconnect();
  alice.call(stop(first));
  CHECK(alice.call(create(), 60'000, "k").phase == "running");
  CHECK(node.backend->started().size() == 2);
}

TEST_CASE("a key from an earlier process still names its sandbox") {
  dsec::actors::sandbox_record r;
  r.id = "e0-aaaaaaaaaaaaaaaa";
  r.owner = "alice";
  r.phase = base::phase::running;
  r.key = "k";
  node_fixture probe;
  client asking(probe, "alice");
  asking.call(create(), 0, "k");
  r.body_hash = probe.table->keys.begin()->second.body_hash;

  node_fixture node({}, {r});
  client alice(node, "alice");
  const auto a = alice.call(create(), 0, "k");
  CHECK(a.code == "sandbox_failed");
  CHECK(a.object == r.id);
  CHECK(a.message.find("lost") != std::string::npos);
}

TEST_CASE("a create that waits when its client is lost is withdrawn after a while") {
  small_node node(1);
  client alice(node, "alice");
  const auto first = node.running_sandbox(alice);
  client gone(node, "alice");
  gone.ask(create(), 600'000, "k1");
  gone.disconnect();
  node.advance(4s);
  node.advance(2s);
  alice.call(stop(first));
  node.run();
  CHECK(node.backend->live() == 0);
  CHECK(alice.call(list()).ids.size() == 1);
}

TEST_CASE("a client that comes back in time finds its create where it was") {
  small_node node(1);
  client alice(node, "alice");
  const auto first = node.running_sandbox(alice);
  client gone(node, "alice");
  gone.ask(create(), 600'000, "k1");
  gone.disconnect();
  node.advance(4s);
  client back(node, "alice");
  const auto again = back.ask(create(), 600'000, "k1");
  node.advance(20s);
  CHECK_FALSE(back.got(again));
  alice.call(stop(first));
  CHECK(back.got(again)->phase == "running");
  node.advance(60s, 1s);
  CHECK(node.backend->live() == 1);
}

TEST_CASE("a sandbox that starts when its client is lost ends after a while") {
  node_fixture node;
  client alice(node, "alice");
  client gone(node, "alice");
  node.start->held = true;
  gone.ask(create(), 600'000, "k1");
  const auto id = alice.call(list()).ids.at(0);
  gone.disconnect();
  node.start->held = false;
  node.run();
  CHECK(node.backend->live() == 1);  // nobody knows yet that it is not wanted
  node.advance(6s);
  CHECK(node.backend->live() == 0);
  CHECK(alice.call(get(id)).detail.find("gone") != std::string::npos);
  // Whoever asks with the same key now gets another.
  client back(node, "alice");
  const auto other = back.call(create(), 0, "k1");
  CHECK(other.phase == "running");
  CHECK(other.sandbox_id != id);
}

TEST_CASE("a sandbox whose client is lost over the create lives when somebody asks again") {
  node_fixture node;
  client gone(node, "alice");
  node.start->held = true;
  gone.ask(create(), 600'000, "k1");
  gone.disconnect();
  node.start->held = false;
  node.run();
  node.advance(3s);
  client back(node, "alice");
  CHECK(back.call(create(), 0, "k1").phase == "running");
  node.advance(60s, 1s);
  CHECK(node.backend->live() == 1);
  back.disconnect();  // its create was answered
  node.advance(60s, 1s);
  CHECK(node.backend->live() == 1);
}

TEST_CASE("an answered create is not withdrawn with a later one of the same request id") {
  node_fixture node;
  client gone(node, "alice");
  const auto ask = [&](const char* key) {
    capnp::MallocMessageBuilder message;
    auto request = message.initRoot<dsec::proto::Request>();
    request.setId(500);
    request.setIdempotencyKey(key);
    create()(request);
    gone.raw(dsec::proto::frame::from_builder(message));
  };
  ask("k1");
  REQUIRE(gone.got(500)->phase == "running");
  const auto id = gone.got(500)->sandbox_id;
  node.start->held = true;
  ask("k2");
  gone.disconnect();
  node.start->held = false;
  node.advance(6s);
  CHECK(node.backend->live() == 1);
  client back(node, "alice");
  CHECK(back.call(get(id)).phase == "running");
}

TEST_CASE("a create that waits for admission does not keep its frame") {
  small_node node(1);
  client alice(node, "alice");
  const auto first = node.running_sandbox(alice);
  std::vector<std::weak_ptr<int>> frames;
  const auto ask = [&](std::uint64_t id) {
    capnp::MallocMessageBuilder message;
    auto request = message.initRoot<dsec::proto::Request>();
    request.setId(id);
    request.setIdempotencyKey("k");
    create([](auto c) {
      auto variable = c.initEnv(1)[0];
      variable.setName("A");
      variable.setValue(std::string(100'000, 'x').c_str());
    })(request);
    auto held = std::make_shared<int>(1);
    frames.push_back(held);
    alice.raw(dsec::proto::frame::from_builder(message).with(std::move(held)));
  };
  ask(500);
  ask(501);  // waits with it
  CHECK_FALSE(alice.got(500));
  for (const auto& f : frames) CHECK(f.expired());
  alice.call(stop(first));
  CHECK(alice.got(500)->phase == "running");
  CHECK(alice.got(501)->sandbox_id == alice.got(500)->sandbox_id);
}

TEST_CASE("a sandbox in use outlives a client that is lost over a create with its key") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = alice.call(create(), 0, "k1").sandbox_id;
  alice.call(exec(id, "c1"));
  alice.disconnect();
  client late(node, "alice");
  late.ask(create(), 600'000, "k1");
  late.disconnect();
  node.advance(60s, 1s);
  CHECK(node.backend->live() == 1);
}

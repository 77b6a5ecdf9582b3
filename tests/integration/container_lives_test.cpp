// The container backend when things go wrong or many happen at once: failures at every step,
// deaths, parallel lives. Needs root.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <fstream>
#include <thread>

#include "backends/sys/pidfd.hpp"
#include "base/failpoint.hpp"
#include "earlier_daemon.hpp"

using namespace dsec;
using namespace dsec::test;
using base::errc;

namespace {

/// aether of a rig that has one sandbox: the process in its `init` group whose parent is not in it.
pid_t aether_of(const container_rig& rig) {
  const auto all = rig.inhabitants();
  REQUIRE_FALSE(all.empty());
  return *std::min_element(all.begin(), all.end());
}

}  // namespace

#ifdef DSEC_FAILPOINTS
TEST_CASE("a start that fails after any step leaves nothing", "[kernel][container]") {
  const std::string step =
      GENERATE("layers", "slot", "disk", "limits", "init", "channel", "handshake");
  container_rig rig;
  base::failpoint::arm("container.start." + step, "error");
  const auto failed = rig.try_start(container_rig::spec("unlucky"));
  base::failpoint::disarm_all();
  REQUIRE_FALSE(failed);
  INFO(failed.error().message);
  CHECK(failed.error().message.find("start (" + step + ")") == 0);
  CHECK(rig.inhabitants().empty());
  CHECK_FALSE(std::filesystem::exists(rig.scope().state / "sandboxes/unlucky"));
  auto again = rig.start("unlucky");  // same id, same slot
  CHECK(again.sh("echo works").out == "works\n");
  again.stop();
}
#endif

TEST_CASE("starts that cannot succeed say why and leave nothing", "[kernel][container]") {
  container_rig rig;
  auto spec = container_rig::spec("bad");
  spec.layers = {{"missing", "/nonexistent"}};
  CHECK(rig.try_start(spec).error().code == errc::not_found);
  spec.layers = {{"no-image", "/bin/busybox"}};
  const auto no_image = rig.try_start(spec);
  REQUIRE_FALSE(no_image);
  INFO(no_image.error().message);
  CHECK(no_image.error().message.find("attach a layer") != std::string::npos);
  spec.layers.clear();
  CHECK(rig.try_start(spec).error().code == errc::invalid_argument);
  spec = container_rig::spec("Bad_Name");
  CHECK(rig.try_start(spec).error().code == errc::invalid_argument);
  auto box = rig.start("twin");
  CHECK(rig.try_start(container_rig::spec("twin")).error().code == errc::already_exists);
  CHECK(box.sh("echo unharmed").out == "unharmed\n");
  box.stop();
}

TEST_CASE("when slots run out a start says so", "[kernel][container]") {
  container_rig rig({1, 2});
  auto a = rig.start("a");
  auto b = rig.start("b");
  const auto c = rig.try_start(container_rig::spec("c"));
  REQUIRE_FALSE(c);
  CHECK(c.error().code == errc::capacity);
  CHECK(c.error().message.find("slots") != std::string::npos);
  a.stop();
  CHECK(eventually([&] {
    auto d = rig.try_start(container_rig::spec("d"));
    return d && (d->stop(), true);
  }));
  b.stop();
}

TEST_CASE("a slot that cannot be made is in the way of no other", "[kernel][container]") {
  container_rig rig({0, 2});
  const auto obstacle = rig.group() / "0";
  REQUIRE(std::filesystem::create_directory(obstacle));
  auto first = rig.start("first");
  CHECK(first.sh("echo one").out == "one\n");
  const auto refused = rig.try_start(container_rig::spec("second"));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().message.find("group '0'") != std::string::npos);
  REQUIRE(std::filesystem::remove(obstacle));
  auto second = rig.start("second");
  CHECK(second.sh("echo two").out == "two\n");
  second.stop();
  first.stop();
}

TEST_CASE("fifty sandboxes live and die at once", "[kernel][container]") {
  container_rig rig({8, 64});
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 10; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 5; ++i) {
        const auto id = "n" + std::to_string(t) + "-" + std::to_string(i);
        auto box = rig.try_start(container_rig::spec(id));
        if (!box) continue;
        try {
          if (box->sh("echo $$ > /me; hostname", 60s).out == id + "\n") ++good;
        } catch (const std::exception&) {
          continue;
        }
        (void)(*box)->stop();
      }
    });
  }
  for (auto& t : threads) t.join();
  CHECK(good == 50);
  CHECK(rig.inhabitants().empty());
}

TEST_CASE(
    "a sandbox whose aether is killed is gone, once, everything of it ends and its slot is free",
    "[kernel][container]") {
  container_rig rig({0, 1});
  auto box = rig.start("victim");
  const auto id = box.begin_sh("sleep 1000");
  REQUIRE(::kill(aether_of(rig), SIGKILL) == 0);
  const auto gone = box.events().wait_gone(10s);
  REQUIRE(gone);
  CHECK(gone->first == base::cause::backend);
  CHECK(eventually([&] { return rig.inhabitants().empty(); }));
  auto spec = program({"/bin/true"});
  spec.id = "after";
  CHECK(box->exec(spec).error().code == errc::sandbox_failed);
  CHECK_FALSE(box.events().wait_ended(id, 0ms));
  CHECK(rig.try_start(container_rig::spec("early")).error().code == errc::capacity);
  box.stop();
  CHECK(box.events().times_gone() == 1);
  auto next = rig.start("next");  // in the only slot
  CHECK(next.sh("echo works").out == "works\n");
  next.stop();
}

TEST_CASE("stopping ends whatever runs and tells no one that it is gone", "[kernel][container]") {
  container_rig rig;
  auto box = rig.start("busy");
  for (int i = 0; i < 20; ++i) box.begin_sh("setsid sleep 1000 & exec sleep 1000");
  REQUIRE(eventually([&] { return rig.inhabitants().size() >= 42; }));
  box.stop();
  CHECK(rig.inhabitants().empty());
  CHECK(box.events().times_gone() == 0);
}

TEST_CASE("an instance that is destroyed without a stop is stopped", "[kernel][container]") {
  container_rig rig;
  { auto box = rig.start("scoped"); }
  CHECK(rig.inhabitants().empty());
}

TEST_CASE("stop from two threads, while commands start, is one stop", "[kernel][container]") {
  container_rig rig;
  auto box = rig.start("raced");
  std::atomic<bool> done{false};
  std::thread starter([&] {
    for (int i = 0; !done; ++i) {
      auto spec = program({"/bin/true"});
      spec.id = "r" + std::to_string(i);
      (void)box->exec(spec);
    }
  });
  REQUIRE(box.events().wait_started("r3", 10s));
  base::result<void> outcomes[2];
  std::thread other([&] { outcomes[0] = box->stop(); });
  outcomes[1] = box->stop();
  other.join();
  done = true;
  starter.join();
  CHECK(outcomes[0]);
  CHECK(outcomes[1]);
  CHECK(rig.inhabitants().empty());
}

TEST_CASE("closing while starts are under way waits for them and refuses later ones",
          "[kernel][container]") {
  container_rig rig;
  std::vector<std::optional<container_box>> boxes(8);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    threads.emplace_back([&, i] {
      auto box = rig.try_start(container_rig::spec("s" + std::to_string(i)));
      if (box) boxes[i] = std::move(*box);
    });
  }
  REQUIRE(eventually([&] { return !rig.inhabitants().empty(); }));
  const auto closed = rig.backend().close();
  for (auto& t : threads) t.join();
  const auto live =
      std::count_if(boxes.begin(), boxes.end(), [](const auto& b) { return b.has_value(); });
  CHECK(live > 0);
  REQUIRE_FALSE(closed);
  CHECK(closed.error().code == errc::wrong_phase);
  CHECK(rig.try_start(container_rig::spec("later")).error().code == errc::unavailable);
  boxes.clear();
  CHECK(rig.backend().close());
}

TEST_CASE("sandboxes outlive their launcher and new ones can be made", "[kernel][container]") {
  container_rig rig;
  auto box = rig.start("old");
  const auto running = box.begin_sh("sleep 0.5; echo survived");
  const auto first = rig.launcher_pid();
  REQUIRE(first);
  REQUIRE(::kill(*first, SIGKILL) == 0);
  auto next = rig.start("new");
  CHECK(next.sh("echo made").out == "made\n");
  CHECK(rig.launcher_pid() != first);
  CHECK(box.wait(running).out == "survived\n");
  CHECK(box.sh("echo still here").out == "still here\n");
  CHECK(box.events().times_gone() == 0);
  next.stop();
  box.stop();
}

TEST_CASE("a sandbox whose launcher died can be stopped, and its death is still noticed",
          "[kernel][container]") {
  container_rig rig;
  auto box = rig.start("adopted");
  const auto aether = aether_of(rig);
  const auto first = rig.launcher_pid();
  REQUIRE(::kill(*first, SIGKILL) == 0);
  REQUIRE(eventually([&] { return rig.launcher_pid() && rig.launcher_pid() != first; }));
  REQUIRE(::kill(aether, SIGKILL) == 0);
  CHECK(box.events().wait_gone(10s));
  box.stop();
}

TEST_CASE("what a killed daemon left and nobody takes over is ended",
          "[kernel][container][recovery]") {
  container_rig rig({2, 64}, false);
  earlier_daemon before([&] {
    rig.open();
    std::vector<container_box> kept;
    kept.push_back(rig.start("orphan"));
    kept.back().begin_sh("sleep 1000");
    return kept;
  });
  REQUIRE(rig.inhabitants().size() >= 3);
  // A launcher that does not even answer must not hold up the next start.
  const auto launcher = rig.launcher_pid();
  REQUIRE(launcher);
  const bool stuck = GENERATE(false, true);
  if (stuck) ::kill(*launcher, SIGSTOP);
  before.kill();
  rig.open();
  CHECK(rig.inhabitants().empty());
  CHECK(std::filesystem::exists(rig.scope().state / "sandboxes/orphan/spool"));
  CHECK_FALSE(std::filesystem::exists(rig.scope().state / "sandboxes/orphan/upper"));
  auto box = rig.start("fresh");
  CHECK(box.sh("echo fresh").out == "fresh\n");
  box.stop();
}

TEST_CASE("another worker's groups are not touched", "[kernel][container]") {
  container_rig rig;
  base::node_config node;
  node.instance = rig.scope().instance;
  const auto other = rig.scope().state / "other";
  const auto refused = container::container_backend::open(base::paths(other), node, {});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::conflict);
  CHECK(refused.error().message.find(rig.scope().state.string()) != std::string::npos);
  auto box = rig.start("unharmed");
  CHECK(box.sh("echo fine").out == "fine\n");
  box.stop();
}

TEST_CASE("an idle sandbox costs the daemon at most four descriptors", "[kernel][container]") {
  container_rig rig({0, 64});
  auto first = rig.start("d0");
  first.sh("true");
  const auto before = open_descriptors().size();
  std::vector<container_box> boxes;
  for (int i = 1; i <= 10; ++i) {
    boxes.push_back(rig.start("d" + std::to_string(i)));
    boxes.back().sh("true");  // its log is open from now on
  }
  CHECK(open_descriptors().size() <= before + 40);
  for (auto& b : boxes) b.stop();
  first.stop();
}

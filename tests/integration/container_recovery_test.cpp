// What the next container backend finds of the sandboxes of one that was killed or has left. Needs
// root.
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>

#include "backends/container/launcher_process.hpp"
#include "base/failpoint.hpp"
#include "earlier_daemon.hpp"

using namespace dsec;
using namespace dsec::test;
using base::errc;

namespace {

using backends::known_command;

void kill_process(pid_t pid) {
  REQUIRE(::kill(pid, SIGKILL) == 0);
}

pid_t aether_of(const container_rig& rig) {
  const auto all = rig.inhabitants();
  REQUIRE_FALSE(all.empty());
  return *std::min_element(all.begin(), all.end());
}

}  // namespace

TEST_CASE("a sandbox that died while no daemon was there is told as dead, its results can be read",
          "[kernel][container][recovery]") {
  container_rig rig({0, 1}, false);
  earlier_daemon before(rig, "dead", [&](container_box& box) {
    box.run(with_id(shell("echo last words"), "said"));
    box.begin(with_id(shell("echo half; sleep 1000"), "cut"));
    REQUIRE(eventually([&] {
      return box->read_output("cut", backends::stream::out, 0, 10, std::nullopt)->data == "half\n";
    }));
  });
  before.kill();
  const bool at_once = GENERATE(false, true);
  kill_process(aether_of(rig));
  if (!at_once) REQUIRE(eventually([&] { return rig.inhabitants().empty(); }));
  rig.open_only();
  auto [box, what] = rig.recover("dead");
  if (what.alive) {  // it took its time: then its death is an event
    CHECK(box.events().wait_gone(10s));
    box.stop();
    rig.end_unrecovered();
  } else {
    CHECK(what.died_of == base::cause::backend);
    CHECK(what.detail.find("its aether has ended") == 0);
    CHECK(box->exec(with_id(shell("true"), "x")).error().code == errc::wrong_phase);
    CHECK(box->usage().error().code == errc::wrong_phase);
    CHECK(box->stop());
    rig.end_unrecovered();
    CHECK(box->stop());
  }
  CHECK(std::holds_alternative<known_command::pending>(command(what, "cut").end));
  CHECK(box->read_output("said", backends::stream::out, 0, 20, 11)->data == "last words\n");
  CHECK(box->read_output("cut", backends::stream::out, 0, 20, std::nullopt)->data == "half\n");
  box->forget("said");
  CHECK(box->read_output("said", backends::stream::out, 0, 1, 11).error().code == errc::not_found);
  auto next = rig.start("next");  // in the only slot
  CHECK(next.sh("echo works").out == "works\n");
  next.stop();
}

TEST_CASE("when daemon and launcher are both killed nothing is left, and that is said",
          "[kernel][container][recovery]") {
  container_rig rig({2, 64}, false);
  earlier_daemon before(rig, "lost", [&](container_box& box) {
    box.run(with_id(shell("echo last words"), "said"));
    box.begin_sh("setsid sleep 1000 & exec sleep 1000");
  });
  const auto launcher = rig.launcher_pid();
  REQUIRE(launcher);
  before.kill();
  kill_process(*launcher);
  CHECK(eventually([&] { return rig.inhabitants().empty(); }, 2s));  // aether saw to it
  rig.open_only();
  auto [box, what] = rig.recover("lost");
  CHECK_FALSE(what.alive);
  CHECK(what.died_of == base::cause::lost);
  CHECK(box->read_output("said", backends::stream::out, 0, 20, 11)->data == "last words\n");
  CHECK(rig.backend().recover(container_rig::spec("never-was"), {}).error().code ==
        errc::not_found);
  CHECK(rig.try_start(container_rig::spec("early")).error().code == errc::unavailable);
  rig.end_unrecovered();
  CHECK_FALSE(std::filesystem::exists(rig.scope().state / "sandboxes/lost/upper"));
  auto next = rig.start("next");
  CHECK(next.sh("echo works").out == "works\n");
  next.stop();
}

TEST_CASE("what was taken over outlives the launcher, before and after it is taken over",
          "[kernel][container][recovery]") {
  container_rig rig({2, 64}, false);
  earlier_daemon before([&] {
    rig.open();
    std::vector<container_box> kept;
    kept.push_back(rig.start("first"));
    kept.push_back(rig.start("second"));
    for (auto& box : kept) box.begin(with_id(shell("sleep 1000"), "sleeper"));
    return kept;
  });
  before.kill();
  rig.open_only();
  const auto replaced = [&](pid_t old) {
    kill_process(old);
    REQUIRE(eventually([&] { return rig.launcher_pid() && rig.launcher_pid() != old; }));
    return *rig.launcher_pid();
  };
  auto [first, one_of_two] = rig.recover("first");
  REQUIRE(one_of_two.alive);
  const auto second_launcher = replaced(*rig.launcher_pid());
  auto [second, other_of_two] = rig.recover("second");
  REQUIRE(other_of_two.alive);
  rig.end_unrecovered();
  replaced(second_launcher);
  auto third = rig.start("third");  // waits until the new launcher works
  CHECK(first.sh("echo one").out == "one\n");
  CHECK(second.sh("echo two").out == "two\n");

  // The launcher that has adopted them tells the next daemon of them as well.
  rig.backend().leave();
  { const auto gone = std::move(first), also = std::move(second), last = std::move(third); }
  rig.leave();
  rig.open_only();
  for (const auto* id : {"first", "second", "third"}) {
    auto [box, what] = rig.recover(id);
    REQUIRE(what.alive);
    CHECK(box.sh("echo still").out == "still\n");
    if (id != std::string("third")) {
      REQUIRE(box->kill("sleeper"));
      CHECK(box.wait("sleeper").exited->killed);
    }
    box.stop();
  }
  rig.end_unrecovered();
  CHECK(rig.inhabitants().empty());
}

#ifdef DSEC_FAILPOINTS
TEST_CASE("a launcher that dies as it is taken over leaves what it held to the next",
          "[kernel][container][recovery]") {
  container_rig rig({2, 64}, false);
  earlier_daemon before(rig, "kept");
  before.kill();
  std::atomic<bool> told{false};
  bool replaced = false;
  base::failpoint::arm("container.recover.listed", [&] {
    base::failpoint::arm("container.launcher.adopted", [&] { told = true; });  // of nothing
    kill_process(*rig.launcher_pid());
    replaced = eventually([&] { return told.load(); });
  });
  rig.open_only();
  CHECK(replaced);
  {
    auto [box, what] = rig.recover("kept");
    REQUIRE(what.alive);
    rig.end_unrecovered();
    rig.backend().leave();
  }
  rig.leave();
  auto [box, what] = rig.inherit("kept");
  CHECK(what.alive);
  box.stop();
}
#endif

TEST_CASE("a backend that leaves leaves everything running, and the next one goes on",
          "[kernel][container][recovery]") {
  container_rig rig({2, 64});
  const auto launcher = rig.launcher_pid();
  {
    auto box = rig.start("kept");
    box.begin(with_id(shell("while ! test -e /go; do sleep 0.01; done; echo gone"), "long"));
    rig.backend().leave();
    CHECK(rig.try_start(container_rig::spec("late")).error().code == errc::unavailable);
  }
  rig.leave();
  CHECK(rig.launcher_pid() == launcher);
  CHECK(rig.inhabitants().size() >= 3);
  rig.open_only();
  CHECK(rig.launcher_pid() == launcher);
  auto [box, what] = rig.recover("kept");
  REQUIRE(what.alive);
  rig.end_unrecovered();
  CHECK(rig.backend().recover(container_rig::spec("kept"), {}).error().code ==
        errc::already_exists);
  CHECK(box.sh("touch /go; echo ok").out == "ok\n");
  CHECK(box.wait("long").out == "gone\n");
  auto beside = rig.start("beside");
  CHECK(beside.sh("hostname").out == "beside\n");
  beside.stop();
  box.stop();
}

TEST_CASE("a backend that ends before it has settled what it found leaves it",
          "[kernel][container][recovery]") {
  container_rig rig({2, 64}, false);
  earlier_daemon before(rig, "kept");
  before.kill();
  rig.open_only();
  CHECK(rig.backend().close());  // as when the host turns out to lack something
  rig.open_only();
  auto [box, what] = rig.recover("kept");
  REQUIRE(what.alive);
  rig.end_unrecovered();
  CHECK(box.sh("echo here").out == "here\n");
  box.stop();
}

TEST_CASE("a sandbox that was taken over and then dies is gone, once",
          "[kernel][container][recovery]") {
  container_rig rig({2, 64}, false);
  earlier_daemon before(rig, "victim");
  before.kill();
  auto [box, what] = rig.inherit("victim");
  const auto running = box.begin_sh("sleep 1000");
  kill_process(aether_of(rig));
  const auto gone = box.events().wait_gone(10s);
  REQUIRE(gone);
  CHECK(gone->first == base::cause::backend);
  box.stop();
  CHECK(box.events().times_gone() == 1);
  CHECK_FALSE(box.events().wait_ended(running, 0ms));
}

TEST_CASE("of two launchers the one that answers is taken over, the other is ended",
          "[kernel][container][recovery]") {
  container_rig rig({2, 64}, false);
  earlier_daemon before(rig, "hidden", [&](container_box&) {
    auto second = container::launcher_process::start(base::paths(rig.scope().state), -1);
    REQUIRE(second);
    second->leave();
  });
  before.kill();
  rig.open_only();
  auto [box, what] = rig.recover("hidden");
  CHECK_FALSE(what.alive);
  CHECK(what.died_of == base::cause::lost);
  rig.end_unrecovered();
  CHECK(rig.inhabitants().empty());
  auto next = rig.start("next");
  CHECK(next.sh("echo works").out == "works\n");
  next.stop();
}

TEST_CASE("a daemon with too few descriptors to take over takes nothing and ends nothing",
          "[kernel][container][recovery]") {
  container_rig rig({0, 64}, false);
  earlier_daemon before([&] {
    rig.open();
    std::vector<container_box> kept;
    for (int i = 0; i < 20; ++i) kept.push_back(rig.start("n" + std::to_string(i)));
    return kept;
  });
  before.kill();
  const auto in_use = open_descriptors().size();
  rlimit all{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &all) == 0);
  const rlimit few{in_use + 30, all.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
  const auto failed =
      container::container_backend::open(base::paths(rig.scope().state), rig.node(), {});
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &all) == 0);
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message.find("open files") != std::string::npos);
  rig.open_only();
  for (int i = 0; i < 20; ++i) {
    auto [box, what] = rig.recover("n" + std::to_string(i));
    CHECK(what.alive);
    box.stop();
  }
  rig.end_unrecovered();
}

TEST_CASE("sandboxes that live forbid other user ids, which might be theirs",
          "[kernel][container][recovery]") {
  container_rig rig({2, 64});
  {
    auto box = rig.start("kept");
    rig.backend().leave();
  }
  rig.leave();
  auto node = rig.node();
  node.uid_base += 65536;
  const auto refused = container::container_backend::open(base::paths(rig.scope().state), node, {});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::conflict);
  CHECK(refused.error().message.find("node.uid_base") != std::string::npos);
  rig.open_only();
  auto [box, what] = rig.recover("kept");
  REQUIRE(what.alive);
  box.stop();
  rig.end_unrecovered();
}

#ifdef DSEC_FAILPOINTS
TEST_CASE("a sandbox whose take-over fails lives, and the next daemon takes it over",
          "[kernel][container][recovery]") {
  const std::string point = GENERATE("container.recover.taken", "container.recover.connected");
  container_rig rig({2, 64}, false);
  earlier_daemon before(rig, "kept", [&](container_box& box) {
    box.begin(with_id(shell("while ! test -e /go; do sleep 0.01; done; echo gone"), "long"));
  });
  before.kill();
  rig.open_only();
  base::failpoint::arm(point, "error");
  const auto failed = rig.try_recover("kept");
  REQUIRE_FALSE(failed);
  CHECK(failed.error().code != errc::not_found);
  CHECK(rig.inhabitants().size() >= 3);
  rig.leave();
  auto [box, what] = rig.inherit("kept");
  REQUIRE(what.alive);
  CHECK(box.sh("touch /go").code() == 0);
  CHECK(box.wait("long").out == "gone\n");
  box.stop();
}

TEST_CASE("what could not be ended at the start is ended later, and sandboxes are started then",
          "[kernel][container][recovery]") {
  const std::string point = GENERATE("container.leftovers.killed", "container.leftovers.slots");
  container_rig rig({1, 64}, false);
  earlier_daemon before(rig, "unknown");
  before.kill();
  rig.open_only();
  base::failpoint::arm(point, "error");
  REQUIRE_FALSE(rig.backend().end_unrecovered());
  if (point == "container.leftovers.killed")
    CHECK(rig.try_start(container_rig::spec("early")).error().code == errc::unavailable);
  rig.end_unrecovered();
  CHECK(rig.inhabitants().empty());
  CHECK_FALSE(std::filesystem::exists(rig.scope().state / "sandboxes/unknown/upper"));
  auto next = rig.start("next");
  CHECK(next.sh("echo works").out == "works\n");
  next.stop();
}
#endif

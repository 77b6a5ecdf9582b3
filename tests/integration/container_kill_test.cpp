// The daemon is killed after every step of a start, of a stop and of a recovery; the next one finds
// each sandbox either alive or gone, and in the end nothing is left. Needs root and failure points.
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <thread>

#include "base/failpoint.hpp"
#include "earlier_daemon.hpp"

using namespace dsec;
using namespace dsec::test;
using base::errc;

#ifdef DSEC_FAILPOINTS
namespace {

const std::vector<std::string> steps{"layers", "slot",    "disk",     "limits",
                                     "init",   "channel", "handshake"};

/// What the next daemon does; answers whether the sandbox lived.
bool take_over(container_rig& rig) {
  rig.open_only();
  auto found = rig.try_recover("unlucky");
  rig.end_unrecovered();
  if (!found) {
    CHECK(found.error().code == errc::not_found);
    return false;
  }
  auto& [box, what] = *found;
  const bool alive = what.alive;
  if (alive) CHECK(box.sh("echo alive").out == "alive\n");
  box.stop();
  CHECK(rig.inhabitants().empty());
  CHECK_FALSE(std::filesystem::exists(rig.scope().state / "sandboxes/unlucky/upper"));
  return alive;
}

void check_that_all_works(container_rig& rig) {
  auto next = rig.start("next");
  CHECK(next.sh("echo works").out == "works\n");
  next.stop();
}

}  // namespace

TEST_CASE("a daemon that is killed after any step of a start leaves a sandbox or nothing",
          "[kernel][container][recovery][kill-points]") {
  const std::string step = GENERATE(from_range(steps));
  container_rig rig({1, 64}, false);
  REQUIRE(dies_in_child([&] {
    rig.open();
    base::failpoint::arm("container.start." + step, "kill");
    rig.start("unlucky");
  }));
  INFO("killed after " << step);
  const bool exists = step == "init" || step == "channel" || step == "handshake";
  CHECK(take_over(rig) == exists);
  check_that_all_works(rig);
}

TEST_CASE("a daemon that is killed after any step of a stop leaves a sandbox or nothing",
          "[kernel][container][recovery][kill-points]") {
  const std::string step = GENERATE(from_range(steps));
  container_rig rig({1, 64}, false);
  REQUIRE(dies_in_child([&] {
    rig.open();
    auto box = rig.start("unlucky");
    box.begin_sh("setsid sleep 1000 & exec sleep 1000");
    base::failpoint::arm("container.stop." + step, "kill");
    box.stop();
  }));
  INFO("killed after the undo of " << step);
  CHECK(take_over(rig) == (step == "handshake" || step == "channel"));
  check_that_all_works(rig);
}

TEST_CASE("a daemon that is killed while it takes over leaves the sandbox to the next",
          "[kernel][container][recovery][kill-points]") {
  const std::string point = GENERATE("container.recover.taken", "container.recover.connected",
                                     "container.leftovers.killed", "container.leftovers.slots");
  container_rig rig({1, 64}, false);
  {
    earlier_daemon before([&] {
      rig.open();
      std::vector<container_box> kept;
      kept.push_back(rig.start("unlucky"));
      kept.push_back(rig.start("unknown"));
      for (auto& box : kept) box.begin_sh("exec sleep 1000");
      return kept;
    });
  }
  REQUIRE(dies_in_child([&] {
    rig.open_only();
    base::failpoint::arm(point, "kill");
    auto taken = rig.recover("unlucky");
    rig.end_unrecovered();
  }));
  INFO("killed at " << point);
  CHECK(take_over(rig));
  check_that_all_works(rig);
}

TEST_CASE("a daemon that is killed while the launcher works for it leaves a sandbox or nothing",
          "[kernel][container][recovery][kill-points]") {
  container_rig rig({1, 64}, false);
  pid_t launcher = 0;
  {
    earlier_daemon before([&] {
      rig.open();
      rig.start("first").stop();
      rig.backend().refill();  // all is ready for the next
      ::kill(*rig.launcher_pid(), SIGSTOP);
      std::thread([&] { rig.start("unlucky"); }).detach();
      const auto home = rig.scope().state / "sandboxes/unlucky";
      REQUIRE(eventually([&] { return std::filesystem::exists(home); }));
      return std::vector<container_box>();
    });
    launcher = *rig.launcher_pid();
  }
  ::kill(launcher, SIGCONT);
  take_over(rig);  // either is right
  check_that_all_works(rig);
}

TEST_CASE("a daemon that is killed while a launcher is replaced leaves nothing that hangs",
          "[kernel][container][recovery][kill-points]") {
  container_rig rig({1, 64}, false);
  REQUIRE(dies_in_child([&] {
    rig.open();
    auto box = rig.start("unlucky");
    base::failpoint::arm("container.launcher.started", "kill");
    ::kill(*rig.launcher_pid(), SIGKILL);
    while (true) ::pause();
  }));
  CHECK_FALSE(take_over(rig));
  check_that_all_works(rig);
}
#endif

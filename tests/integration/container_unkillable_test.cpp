// Sandboxes with a process that does not die: it holds up itself and nothing else. Needs root and
// the version 1 freezer, whose frozen processes are not killed before they are thawed, like those
// in an uninterruptible call.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>

#include "earlier_daemon.hpp"
#include "support/skip.hpp"

using namespace dsec;
using namespace dsec::test;
using base::errc;

namespace {

class ice {
 public:
  static bool missing() {
    const bool none = !std::filesystem::exists("/sys/fs/cgroup/freezer/tasks");
    if (none) say_skipped("no version 1 freezer");
    return none;
  }
  ice() { std::filesystem::create_directory(group_); }
  ~ice() {
    thaw();
    CHECK(eventually([&] { return ::rmdir(group_.c_str()) == 0; }));
  }
  ice(const ice&) = delete;
  ice& operator=(const ice&) = delete;

  /// The newest process of the rig's sandboxes: the command that was started last.
  void freeze(const container_rig& rig) const {
    const auto all = rig.inhabitants();
    REQUIRE_FALSE(all.empty());
    freeze(*std::max_element(all.begin(), all.end()));
  }
  void freeze(pid_t process) const {
    put("cgroup.procs", std::to_string(process));
    put("freezer.state", "FROZEN");
  }
  void thaw() const { put("freezer.state", "THAWED"); }

 private:
  void put(const char* file, const std::string& text) const {
    std::ofstream(group_ / file) << text << std::flush;
  }
  std::filesystem::path group_ = "/sys/fs/cgroup/freezer/dsec-test-" + std::to_string(::getpid());
};

}  // namespace

TEST_CASE("what cannot be killed keeps its slot, holds up nobody and is stopped later",
          "[kernel][container][unkillable]") {
  if (ice::missing()) return;
  const ice cold;
  container_rig rig({0, 2});
  auto stuck = rig.start("stuck");
  stuck.begin_sh("exec sleep 1000");
  cold.freeze(rig);
  const auto first = stuck->stop();
  REQUIRE_FALSE(first);
  CHECK(first.error().message.find("stop (init)") != std::string::npos);
  auto other = rig.start("other");  // in the other slot
  CHECK(rig.try_start(container_rig::spec("third")).error().code == errc::capacity);
  CHECK(other.sh("echo fine").out == "fine\n");
  other.stop();
  cold.thaw();
  CHECK(stuck->stop());
  CHECK(rig.inhabitants().empty());
}

TEST_CASE("a start goes on beside what an earlier run left and cannot be killed",
          "[kernel][container][unkillable]") {
  if (ice::missing()) return;
  const ice cold;
  container_rig rig({1, 2}, false);
  earlier_daemon before([&] {
    rig.open();
    std::vector<container_box> kept;
    kept.push_back(rig.start("orphan"));
    kept.back().begin_sh("exec sleep 1000");
    return kept;
  });
  cold.freeze(rig);
  before.kill();
  rig.open_only();
  const auto stays = rig.backend().end_unrecovered();
  REQUIRE_FALSE(stays);
  CHECK(stays.error().code == errc::unavailable);
  CHECK(stays.error().message.find("of an earlier run there is still") == 0);
  auto box = rig.start("fresh");
  CHECK(box.sh("echo fresh").out == "fresh\n");
  CHECK(rig.try_start(container_rig::spec("second")).error().code == errc::capacity);
  CHECK_FALSE(rig.backend().end_unrecovered());
  cold.thaw();
  CHECK(eventually([&] { return rig.backend().end_unrecovered().has_value(); }));
  auto second = rig.start("second");  // the slot can be used again
  CHECK(second.sh("echo second").out == "second\n");
  second.stop();
  box.stop();
  CHECK(rig.inhabitants().empty());
}

TEST_CASE("an instance whose launcher cannot be killed is ended but for that, which is named",
          "[kernel][container][unkillable][launcher-fails]") {
  if (ice::missing()) return;
  const ice cold;
  container_rig rig({1, 2}, false);
  earlier_daemon before(rig, "unwanted");
  before.kill();
  const auto launcher = rig.launcher_pid();
  REQUIRE(launcher);
  cold.freeze(*launcher);
  const auto end = [&] {
    return container::container_backend::end_everything(base::paths(rig.scope().state), rig.node(),
                                                        {});
  };
  const auto first = end();
  REQUIRE_FALSE(first);
  CHECK(first.error().code == errc::deadline_exceeded);
  CHECK(first.error().message.find("process " + std::to_string(*launcher)) != std::string::npos);
  CHECK(rig.inhabitants().empty());
  cold.thaw();
  CHECK(eventually([&] { return !rig.launcher_pid(); }));
  const auto second = end();
  INFO((second ? std::string() : second.error().to_string()));
  CHECK(second);
}

// The launcher killed at every step of its own while it works for a backend: creates are made by
// the next one, sandboxes live on, nothing is left. Needs root.
#include <catch2/catch.hpp>
#include <cstdlib>

#include "container_rig.hpp"

using namespace dsec;
using namespace dsec::test;

namespace {

/// Launchers that are started while it lives kill themselves at the step.
class dies_at {
 public:
  explicit dies_at(const char* step) {
    ::setenv("DSEC_LAUNCHER_FAIL", (std::string(step) + "=kill").c_str(), 1);
  }
  ~dies_at() { ::unsetenv("DSEC_LAUNCHER_FAIL"); }
  dies_at(const dies_at&) = delete;
  dies_at& operator=(const dies_at&) = delete;
};

}  // namespace

TEST_CASE("a launcher that is killed at any of its steps costs a create only another try",
          "[kernel][container][launcher-fails]") {
  for (const char* step :
       {"request", "layers", "slot", "upper", "overlay", "channel", "init", "record"}) {
    INFO(step);
    container_rig rig({2, 8}, false);
    {
      const dies_at here(step);
      rig.open();
    }
    const auto first = rig.launcher_pid();
    auto box = rig.start("created");
    CHECK(rig.launcher_pid() != first);
    CHECK(box.sh("echo made").out == "made\n");
    auto beside = rig.start("beside");
    CHECK(beside.sh("echo made").out == "made\n");
    box.stop();
    CHECK(beside.sh("echo lives").out == "lives\n");
    beside.stop();
  }
}

// The launcher killed at every step of its own while it works for a backend: creates are made by
// the next one, sandboxes live on, nothing is left. Needs root.
#include <signal.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <span>

#include "container_rig.hpp"
#include "support/length.hpp"

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
  container_rig rig({0, 4});
  auto beside = rig.start("beside");
  // In the order in which they matter, since a software CPU takes seconds for each.
  const std::array steps{"init",    "overlay", "record", "slot",
                         "channel", "upper",   "layers", "request"};
  const int count = std::max(2, length(static_cast<int>(steps.size())));
  for (const char* step : std::span(steps).first(static_cast<std::size_t>(count))) {
    INFO(step);
    auto last = rig.launcher_pid();
    {
      const dies_at here(step);
      REQUIRE(last);
      REQUIRE(::kill(*last, SIGKILL) == 0);
      REQUIRE(eventually([&] { return rig.launcher_pid().value_or(*last) != *last; }, 20s));
    }
    last = rig.launcher_pid();
    auto box = rig.start(std::string("made-") + step);
    CHECK(rig.launcher_pid() != last);
    CHECK(box.sh("echo made").out == "made\n");
    box.stop();
  }
  CHECK(beside.sh("echo lives").out == "lives\n");
  beside.stop();
}

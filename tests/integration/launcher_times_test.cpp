// How long the launcher takes, with the real aether. Hidden: `integration "[.launcher-times]"
// 2>steps.log`, with DSEC_LAUNCHER_TIMES=1 in the launcher's log the microseconds of every step.
// Numbers to look at, nothing asserted.
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>

#include "launcher_rig.hpp"

using namespace dsec;
using test::launcher_rig;
using clock_type = std::chrono::steady_clock;

namespace {

struct samples {
  std::vector<double> ms;

  template <class F>
  void time(F f) {
    const auto start = clock_type::now();
    f();
    ms.push_back(std::chrono::duration<double, std::milli>(clock_type::now() - start).count());
  }
  void print(const char* what) {
    std::sort(ms.begin(), ms.end());
    std::printf("%-16s min %.3f  p50 %.3f  p90 %.3f  p99 %.3f ms  (%zu)\n", what, ms.front(),
                ms[ms.size() / 2], ms[ms.size() * 9 / 10], ms[ms.size() * 99 / 100], ms.size());
  }
};

}  // namespace

TEST_CASE("times of slots and creates", "[.launcher-times]") {
  constexpr int rounds = 200;
  launcher_rig rig({"DSEC_LAUNCHER_TIMES=1"}, launcher_rig::guest_program::aether);
  samples slots, creates, ends;
  test::sandbox_options options{.layers = {"busybox", "tool", "hostile"}};
  for (int i = 0; i < rounds; ++i) {
    const auto id = "t" + std::to_string(i);
    launcher_rig::made m;
    slots.time([&] { rig.prepare(id, 1, options); });
    rig.client().hello();
    creates.time([&] { m = rig.ask_create(id, 1, options); });
    REQUIRE(m.outcome == "done");
    ends.time([&] {
      ::syscall(SYS_pidfd_send_signal, m.pidfd.get(), SIGKILL, nullptr, 0);
      rig.client().wait_exited();
    });
    REQUIRE(rig.client().release(id) == "done");
  }
  slots.print("slot + groups");
  creates.print("create");
  ends.print("kill -> exited");
}

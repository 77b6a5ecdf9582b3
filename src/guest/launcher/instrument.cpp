#include "guest/launcher/instrument.hpp"

#ifdef DSEC_FAILPOINTS

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "guest/launcher/sys.hpp"

namespace dsec::launcher {
namespace {

struct record {
  const char* step;
  std::uint64_t nanoseconds;
};

// Plain memory, since steps run in children that share it.
char fail_step[64];
bool fail_kills;
bool timed;
long launcher_pid;
record records[64];
unsigned count;

std::uint64_t now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<std::uint64_t>(t.tv_sec) * 1'000'000'000U +
         static_cast<std::uint64_t>(t.tv_nsec);
}

}  // namespace

void instrument_start() {
  launcher_pid = getpid();
  timed = getenv("DSEC_LAUNCHER_TIMES") != nullptr;
  const char* point = getenv("DSEC_LAUNCHER_FAIL");
  const char* equals = point == nullptr ? nullptr : strchr(point, '=');
  if (equals == nullptr) return;
  snprintf(fail_step, sizeof fail_step, "%.*s", static_cast<int>(equals - point), point);
  fail_kills = strcmp(equals, "=kill") == 0;
}

status failpoint(const char* step) {
  if (strcmp(step, fail_step) != 0) return {};
  // In a child of another pid namespace kill(2) could not name the launcher: it fails instead, and
  // the launcher's own step around it can be killed.
  if (fail_kills) sys::call(SYS_kill, launcher_pid, SIGKILL);
  return {"failure point", EIO};
}

step_timer::step_timer(const char* step) : step_(step), start_(timed ? now() : 0) {}

step_timer::~step_timer() {
  if (timed && count < sizeof records / sizeof *records) records[count++] = {step_, now() - start_};
}

void log_step_times() {
  if (!timed) return;
  char text[2048];
  int length = 0;
  for (unsigned i = 0; i < count && length < static_cast<int>(sizeof text) - 80; ++i) {
    length += snprintf(text + length, sizeof text - static_cast<unsigned>(length), R"(%s"%s":%.1f)",
                       i == 0 ? "" : ",", records[i].step,
                       static_cast<double>(records[i].nanoseconds) / 1000);
  }
  dprintf(STDERR_FILENO,
          R"({"level":"info","event":"step_times","us":{%s}})"
          "\n",
          text);
  count = 0;
}

}  // namespace dsec::launcher

#endif

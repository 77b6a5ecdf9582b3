// Many sandboxes by several processes at once: sustained churn, and all alive together.
#pragma once

#include <string>
#include <vector>

namespace floor_bench {

struct crowd_plan {
  int amount;   // churn: seconds; density: sandboxes
  int workers;  // processes, each making its sandboxes one after another
  std::string disk;
  const char* program;
  std::vector<std::string> layers;
};

/// Whole lives for so many seconds: groups, namespaces, directory, sandbox, command, kill, all of
/// it removed again; nothing is used twice. Prints "cycle MS" for each and "elapsed MS".
int churn(const crowd_plan& plan);

/// Makes all of them and keeps them, each with its command run; then removes them. Prints "ready",
/// "made AT_MS MS" for each, "live", "stopped MS"; goes on after "ready" and after "live" at a line
/// on standard input.
int density(const crowd_plan& plan);

}  // namespace floor_bench

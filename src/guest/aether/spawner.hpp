// The spawner: a child of aether that was never exec'ed, root inside the sandbox, with the filter
// loaded once. It starts commands as aether's own children and keeps no state about them. Root
// inside can stop or kill it (aether then starts another) but not read or trace it: its memory
// belongs to the outer user namespace and is not dumpable.
#pragma once

#include <linux/resource.h>

#include "guest/aether/spawner_protocol.hpp"

namespace dsec::guest::aether {

inline constexpr int slab_count = 8;

/// guest::core_limit, or 0 where the hard limit forbids more: without privileges it only falls.
constexpr struct rlimit64 core_limits(uint64_t hard) {
  const uint64_t most = hard < core_limit ? hard : core_limit;
  return {most, most};
}

/// Body of the forked child; `link` is its end of the pair, `proc` the sandbox's /proc. Never
/// returns: ends when aether's end closes, or with an exit status that names the failed step (enum
/// spawner_step) when it cannot set itself up.
[[noreturn]] void run_spawner(int link, int proc, const boot_body& boot);

enum spawner_step : int {
  spawner_done = 0,
  spawner_descriptors = 10,
  spawner_limits = 11,
  spawner_namespace = 12,
  spawner_ids = 13,
  spawner_filter = 14,
};

}  // namespace dsec::guest::aether

// The spawner: a child of aether that was never exec'ed, root inside the sandbox, with the filter
// loaded once. It starts commands as aether's own children and keeps no state about them. Root
// inside can stop or kill it (aether then starts another) but not read or trace it: its memory
// belongs to the outer user namespace and is not dumpable.
#pragma once

#include "guest/aether/spawner_protocol.hpp"

namespace dsec::guest::aether {

inline constexpr int slab_count = 8;

/// No core file is written under a limit below the smallest one. It is not 0, because that does not
/// count where the host pipes cores to a helper (core(5)), which would then run, as root on the
/// host, for every crash inside; the kernel gives up only at exactly 1 (do_coredump).
inline constexpr uint64_t core_limit = 1;

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

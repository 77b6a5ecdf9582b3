// What an earlier run of the same instance and state directory left and recover() did not take
// over: sandboxes that live or have ended, ready slots, homes and writable layers. Blocking; called
// once by the backend before it starts anything, with the state directory's lock held by the
// caller.
#pragma once

#include "backends/container/sandbox_host.hpp"
#include "base/result.hpp"

namespace dsec::container {

/// Kills launchers and sandboxes that are not ours, removes groups and writable layers; spools
/// stay. Groups whose processes do not die stay too, are logged, and keep their slots from being
/// used.
/// What the launcher still holds of them stays in `host.left`.
base::result<void> end_leftovers(sandbox_host& host);

}  // namespace dsec::container

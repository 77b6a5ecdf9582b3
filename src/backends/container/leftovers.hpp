// What an earlier run of the same instance and state directory left when it was killed: this
// version does not adopt its sandboxes but ends them properly. Blocking; called once by the backend
// before it starts anything, with the state directory's lock held by the caller.
#pragma once

#include "backends/container/cgroups.hpp"
#include "backends/container/trash.hpp"
#include "base/paths.hpp"
#include "base/result.hpp"

namespace dsec::container {

/// Kills launchers and sandboxes, removes groups and writable layers; spools stay. Groups whose
/// processes do not die stay too, are logged, and keep their slots from being used.
base::result<void> clear_leftovers(const base::paths& paths, const cgroup_tree& groups, trash& bin);

}  // namespace dsec::container

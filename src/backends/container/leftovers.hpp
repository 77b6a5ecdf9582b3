// What an earlier run of the same instance and state directory left when it was killed: this
// version does not adopt its sandboxes but ends them properly. Blocking; called once by the backend
// before it starts anything, with the state directory's lock held by the caller.
#pragma once

#include <string>
#include <vector>

#include "backends/container/cgroups.hpp"
#include "backends/container/trash.hpp"
#include "base/paths.hpp"
#include "base/result.hpp"

namespace dsec::container {

/// Kills launchers and sandboxes, removes groups and writable layers; spools stay. Answers the ids
/// of sandboxes that had not been stopped.
base::result<std::vector<std::string>> clear_leftovers(const base::paths& paths,
                                                       const cgroup_tree& groups, trash& bin);

}  // namespace dsec::container

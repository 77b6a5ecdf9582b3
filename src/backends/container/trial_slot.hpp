// The control groups of one slot for a trial: made with the code that sandboxes use, and removed
// whatever comes of it. Blocking, any thread; one trial per instance name at a time.
#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "backends/container/cgroups.hpp"
#include "base/config.hpp"
#include "base/result.hpp"

namespace dsec::container {

using slot_trial = std::function<base::result<std::string>(const cgroup_tree&, slot_groups&)>;

/// Clears what an interrupted trial of `node.instance` has left, gives `use` fresh groups, ends
/// what runs in them and removes them. `state` tells instances apart, see cgroup_tree::open().
base::result<std::string> with_trial_slot(const base::node_config& node,
                                          const std::filesystem::path& state,
                                          const slot_trial& use);

}  // namespace dsec::container

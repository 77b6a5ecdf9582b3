// Instances that dsecd makes beside the one it is configured for, to try things with. Reads one
// small file.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/config.hpp"
#include "base/paths.hpp"
#include "cli/state_dir.hpp"

namespace dsec::cli {

/// The instance that has claimed the state directory (`serve --instance` may have named it), else
/// the configuration's.
inline std::string instance_here(const base::config& c) {
  auto claimed = instance_of(base::paths(c.state));
  return claimed.empty() ? c.node.instance : claimed;
}

/// The node `<instance>-<suffix>` with `slots` slots and the user ids of the last ones: of those
/// that a running dsecd hands out they are taken last.
inline base::node_config own_instance(const base::config& c, const std::string& suffix,
                                      std::uint32_t slots) {
  const auto& node = c.node;
  auto own = node;
  own.max_sandboxes = std::min(slots, node.max_sandboxes);
  const auto first = node.max_sandboxes - own.max_sandboxes;
  own.instance = instance_here(c) + "-" + suffix;
  own.uid_base += first * 65'536U;
  own.aether_uid_base += first;
  own.slot_pool = 0;
  return own;
}

}  // namespace dsec::cli

// Capabilities of the launcher's thread and of its children. Raw, usable in children that share its
// memory.
#pragma once

#include <cstdint>

#include "guest/launcher/status.hpp"

namespace dsec::launcher {

/// Takes one capability out of the effective set for a scope.
class without_capability {
 public:
  explicit without_capability(int capability);
  ~without_capability();
  without_capability(const without_capability&) = delete;
  without_capability& operator=(const without_capability&) = delete;

 private:
  std::uint64_t saved_ = 0;  // effective set before
  bool changed_ = false;
};

/// Empties bounding, inheritable and ambient set for good. They only matter at exec, and the
/// launcher executes nothing but aether; its children inherit this and need not do it themselves.
status drop_inheritance();

/// Leaves the session keyring that was inherited, as a child would inherit it like a descriptor,
/// for an empty one that nobody may use: neither keys of the host nor a place to meet are in reach
/// of the sandboxes.
status seal_keyring();

/// Becomes `id` (uid, gid and only group) with no capability in any set.
status become_unprivileged(std::uint32_t id);

}  // namespace dsec::launcher

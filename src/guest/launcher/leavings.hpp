// Detached mounts that a create needs no longer. Each close of one waits for an RCU grace period
// (namespace_unlock() in the kernel's fs/namespace.c), one after the other, and on a small machine
// that falls upon the sandbox's first command and the next create. So they are kept until nothing
// has been asked for a moment, and then all go with one unmount and one wait. The launcher's
// thread.
#pragma once

#include <cstddef>
#include <vector>

#include "guest/launcher/fd.hpp"

namespace dsec::launcher {

class leavings {
 public:
  /// Without a request for that long it is time to sweep.
  static constexpr int idle_ms = 20;
  /// So many are swept at once, idle or not.
  static constexpr std::size_t many = 64;

  /// A detached mount; what is none is dropped.
  void take(fd&& mount);
  [[nodiscard]] bool empty() const { return mounts_.empty(); }
  [[nodiscard]] bool full() const { return mounts_.size() >= many; }
  void sweep();

 private:
  std::vector<fd> mounts_;
};

}  // namespace dsec::launcher

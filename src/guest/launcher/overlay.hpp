// A sandbox's root file system: an overlay of the skeleton, the sandbox's layers and its upper
// directory, each through a copy of its mount with the slot's ids, so that the ids on disk are
// those seen inside. Volatile (a normal one waits at unmount for everybody's dirty data), without
// device nodes. The launcher's thread, in the layers' namespace.
#pragma once

#include <span>

#include "guest/launch.hpp"
#include "guest/launcher/fd.hpp"
#include "guest/launcher/layers.hpp"
#include "guest/launcher/status.hpp"

namespace dsec::launcher {

struct overlay_parts {
  std::span<layer* const> layers;  // bottom first
  int upper = -1;                  // detached, id-mapped copy: holds u/ and w/
  int user_namespace = -1;
  unsigned root_id = 0;  // what uid and gid 0 inside are here
};

/// Can this kernel (6.15 and later) make overlays of mounts that are attached nowhere? Found by
/// doing it: older ones accept the options and fail later, in different ways.
bool overlay_takes_detached();

class overlay {
 public:
  /// The result is a detached mount. On failure everything is as before.
  status build(const overlay_parts& parts, bool detached);
  [[nodiscard]] const fd& root() const { return root_; }

 private:
  fd root_;
  fd lower_[1 + guest::max_layers];  // closing a detached mount waits for RCU: left to the
                                     // destructor, after the reply is out
};

}  // namespace dsec::launcher

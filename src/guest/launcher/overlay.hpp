// A sandbox's root file system: an overlay of the skeleton, the sandbox's layers and its upper
// directory, each through a copy of its mount with the slot's ids, so that the ids on disk are
// those seen inside. Volatile (a normal one waits at unmount for everybody's dirty data), without
// device nodes. The launcher's thread, in the layers' namespace.
#pragma once

#include <span>

#include "guest/launch.hpp"
#include "guest/launcher/fd.hpp"
#include "guest/launcher/layers.hpp"
#include "guest/launcher/leavings.hpp"
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

/// Lower layers, topmost first: detached, id-mapped copies.
using lowers = std::span<const fd>;

/// Parts attached for the time of one build below a copy of /work, so that one unmount takes them
/// all off.
class attached_parts {
 public:
  attached_parts() = default;
  attached_parts(const attached_parts&) = delete;
  attached_parts& operator=(const attached_parts&) = delete;
  ~attached_parts() { detach(); }

  /// Afterwards they are "0", "1", … and "upper" in the working directory.
  status attach(lowers from, int upper);
  void detach();

 private:
  bool stacked_ = false;
};

/// What the building left behind is given to leave(), or taken down by the destructor: after the
/// reply is out, for every unmount, and every close of a detached mount, waits for RCU.
class overlay {
 public:
  /// The result is a detached mount.
  status build(const overlay_parts& parts, bool detached);
  void drop();
  /// The copies that the finished overlay does not need.
  void leave(leavings& rest);
  [[nodiscard]] const fd& root() const { return root_; }

 private:
  fd root_;
  fd lower_[1 + guest::max_layers];
  attached_parts attached_;
};

}  // namespace dsec::launcher

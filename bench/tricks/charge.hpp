// What the kernel charges a process for: a memory group of its own.
#pragma once

namespace tricks {

/// Made where the host's mounts are seen. Kernel memory counts as far as it is accounted: what is
/// allocated per CPU for a mount is not.
class charge {
 public:
  charge();
  /// From now on this process is charged there, and what it starts.
  void begin() const;
  [[nodiscard]] double kib() const;

 private:
  int join_ = -1;
  int usage_ = -1;
};

}  // namespace tricks

#include "guest/launcher/leavings.hpp"

#include "guest/launcher/overlay.hpp"

namespace dsec::launcher {

void leavings::take(fd&& mount) {
  // Kept above the line, so that no child copies it; where that fails it is closed at once.
  if (mount.valid() && mount.keep() >= 0) mounts_.push_back(std::move(mount));
}

void leavings::sweep() {
  if (mounts_.empty()) return;
  attached_parts grave;
  const lowers all(mounts_);
  // What could not be attached waits by itself when it is closed below.
  [[maybe_unused]] const status attached =
      grave.attach(all.first(all.size() - 1), all.back().get());
  grave.detach();
  mounts_.clear();
}

}  // namespace dsec::launcher

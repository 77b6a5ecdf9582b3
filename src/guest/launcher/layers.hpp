// The attached layers: read-only EROFS mounts at /layers/<name> of the launcher's namespace, each
// counted by the sandboxes made of it. Setuid programs in them keep working; device nodes do not.
// The launcher's thread.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "guest/launcher/fd.hpp"
#include "guest/launcher/status.hpp"

namespace dsec::launcher {

struct layer {
  std::string path;    // its mount point
  unsigned users = 0;  // sandboxes not yet released
};

class layer_table {
 public:
  /// Learns what is already mounted (by a launcher before this one).
  status load();

  /// Idempotent: the file is looked at only when the name is new.
  status attach(std::string_view name, int image);
  /// EBUSY while it has users.
  status detach(std::string_view name);
  /// nullptr when it is not attached. Stays valid until detach.
  layer* find(std::string_view name);

 private:
  std::map<std::string, layer, std::less<>> layers_;
};

}  // namespace dsec::launcher

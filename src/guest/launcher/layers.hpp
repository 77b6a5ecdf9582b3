// The attached layers: read-only EROFS mounts at /layers/<name> of the launcher's namespace, each
// counted by the sandboxes made of it. Setuid programs in them keep working; device nodes do not.
// The launcher's thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "guest/launch.hpp"
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

  using names = char[guest::max_layers][128];
  /// Counts one use of each of the first `count` names; of none when one is not attached (ENOENT).
  status hold(const names& wanted, std::uint32_t count, std::vector<layer*>& held);
  static void give_back(std::vector<layer*>& held);

 private:
  std::map<std::string, layer, std::less<>> layers_;
};

}  // namespace dsec::launcher

// Who a command runs as: "", NAME, UID, NAME:GROUP or UID:GID resolved in the sandbox's own
// /etc/passwd and /etc/group. Called in a command's child with the inner root's credentials, so a
// slow or hostile file holds up that command only.
#pragma once

#include "guest/aether/user_scan.hpp"

namespace dsec::guest::aether {

struct identity {
  uint32_t uid = 0;
  uint32_t gid = 0;
  size_t group_count = 0;
  uint32_t groups[max_groups] = {};
  fixed_text<max_home> home;  // empty: unknown
};

/// 0, or -errno: -ENOENT when a name is in no file. Root without a group reads no file at all.
long resolve_user(const char* spec, identity& out);

/// Supplementary groups, gid, then (separately, since the filter is loaded in between) uid. -errno
/// on failure, -EINVAL when the id is not mapped in this sandbox.
long take_groups(const identity& who);
long take_uid(const identity& who);

}  // namespace dsec::guest::aether

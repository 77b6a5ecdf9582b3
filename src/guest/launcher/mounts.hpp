// The new mount calls as the launcher uses them: make a file system, clone a mount, map its ids,
// put it somewhere. Nothing here is attached anywhere unless it says so. Usable in children that
// share the launcher's memory.
#pragma once

#include <sys/mount.h>

#include <initializer_list>

#include "guest/launcher/fd.hpp"
#include "guest/launcher/status.hpp"

namespace dsec::launcher {

struct fs_option {
  const char* key;
  const char* value;  // nullptr: a flag
};

/// A detached mount of a new superblock; `attributes` are MOUNT_ATTR_*. `type` is the `what` of a
/// failure.
status make_fs(const char* type, std::initializer_list<fs_option> options, unsigned attributes,
               fd& mount);

/// A detached copy of the mount at `path` (one mount, nothing below it; "" = `dir` itself). The
/// final component is not followed when it is a link. Negative on failure.
fd clone_mount(int dir, const char* path);

/// Gives a detached mount the ids of a user namespace; `attributes` are set besides.
long map_ids(int mount, int user_namespace, unsigned attributes = 0);

/// Changes flags of a mount: MOUNT_ATTR_* to set, and to clear.
long set_attributes(int mount, unsigned set, unsigned clear = 0);

/// Attaches a detached mount. A link at the end of `path` is not followed.
long attach(int mount, int dir, const char* path);

/// Reads out what the kernel has to say about a failed fsconfig and logs it.
void log_fs_messages(int context);

}  // namespace dsec::launcher

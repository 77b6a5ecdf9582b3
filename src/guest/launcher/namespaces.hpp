// The launcher's own mount namespaces. Neither holds a mount of the host's tree, so that the host's
// administrator can unmount what he likes, and nothing of ours is ever seen in the host's
// namespace.
//
//   layers' namespace                               template namespace
//   (the launcher lives in it)                      (held by fd; every sandbox starts as a copy)
//
//   /            tmpfs                              /       read-only, empty
//   /state       the state directory, private copy
//   /layers/X    attached EROFS layers              Copying it costs the same whatever number of
//   /work        scratch of overlay.cpp             layers is attached.
//   /void        empty
//   /sys, /net   sysfs of a network with nothing in it, and that network
//   /proc, /dev  (loop devices made when needed)
#pragma once

#include "guest/launcher/fd.hpp"
#include "guest/launcher/status.hpp"

namespace dsec::launcher {

/// sysfs for all sandboxes. One of each sandbox's own would be one more superblock that every
/// memory group on the host keeps count of, and shows the same as long as sandboxes have empty
/// networks.
inline constexpr const char* empty_sys_path = "/sys";

/// Leaves the host's namespace for a new one as drawn above. `state_dir` is not needed afterwards.
status make_layers_namespace(int state_dir);

/// Enters the one that a dead launcher left behind.
status enter_layers_namespace(int layers_ns);

/// Mounts empty_sys_path in the layers' namespace, unless a launcher before did.
status make_empty_sys();

/// Makes the template, which the calling process never enters.
status make_template(fd& template_ns);

}  // namespace dsec::launcher

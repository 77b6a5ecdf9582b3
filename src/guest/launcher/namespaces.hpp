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
//   /proc, /dev  (loop devices made when needed)
#pragma once

#include "guest/launcher/fd.hpp"
#include "guest/launcher/status.hpp"

namespace dsec::launcher {

/// Leaves the host's namespace for a new one as drawn above. `state_dir` is not needed afterwards.
status make_layers_namespace(int state_dir);

/// Enters the one that a dead launcher left behind.
status enter_layers_namespace(int layers_ns);

/// Makes the template, which the calling process never enters.
status make_template(fd& template_ns);

}  // namespace dsec::launcher

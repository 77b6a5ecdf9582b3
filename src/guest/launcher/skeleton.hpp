// The skeleton: <state>/skeleton, the topmost lower layer of every sandbox. It brings the mount
// points and the device nodes, so that an image needs neither and /dev needs no file system of its
// own. It lies on the state file system because tmpfs cannot be id-mapped before Linux 6.3, and
// that one must be anyway (it holds the uppers).
//   dev/     opaque: whatever an image has there is hidden, so that the only device nodes are these
//   proc/ sys/ tmp/ run/
#pragma once

#include "guest/launcher/status.hpp"

namespace dsec::launcher {

inline constexpr const char* skeleton_path = "/state/skeleton";

/// Makes what is missing; runs at start.
status make_skeleton();

}  // namespace dsec::launcher

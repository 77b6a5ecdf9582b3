// The mounts of a sandbox. Called by the child that becomes aether, in a namespace owned by the
// host which holds nothing yet; uses raw calls only.
//
//   /               the overlay                 nodev
//   /dev            the same overlay's /dev     devices allowed: only the skeleton's are there
//                                               (skeleton.hpp)
//   /dev/pts        devpts of its own, limited
//   /dev/shm        tmpfs of its own, limited
//   /proc           of the new pid namespace. Nothing is mounted over it: what root inside must not
//                   read or write (kcore, kpage*, kmsg, timer_list, sysrq-trigger, sysctls of the
//                   host) belongs to the host's root, who is nobody inside, and a mask would forbid
//                   fresh /proc mounts of nested containers
//   /sys            of an empty network, shared by all and read-only (namespaces.hpp); debugfs and
//                   tracefs are separate file systems, not there
//   /sys/firmware   empty
#pragma once

#include <cstdint>

#include "guest/launcher/fd.hpp"
#include "guest/launcher/status.hpp"

namespace dsec::launcher {

/// Mount options, made ready by the launcher.
struct tree_texts {
  tree_texts(std::uint32_t root_id, std::uint64_t shm_size);

  char root_id[16];
  char tty_id[16];
  char shm_bytes[24];
};

struct tree_fds {
  fd proc;
};

/// `root` and `sys` are detached mounts. Needs the caller's pid namespace (proc) and a private
/// mount namespace.
status mount_tree(int root, int sys, const tree_texts& texts, tree_fds& mounts);

}  // namespace dsec::launcher

// Children that share the launcher's memory: the helper that does one thing in other namespaces and
// exits, and the one that becomes aether. The caller sleeps (CLONE_VFORK) unless it says otherwise.
// What runs in them may use raw system calls and the launcher's memory, nothing of the C library
// that allocates, locks or sets errno.
#pragma once

#include <linux/sched.h>

#include <cstddef>
#include <span>

namespace dsec::launcher {

using child_main = int (*)(void* argument);

/// clone3(2) with a stack of its own; the child runs main(argument) and exits with its result. The
/// glibc wrapper knows neither clone3's flags nor CLONE_INTO_CGROUP, and vfork(2) cannot return
/// twice on one stack. Answers the child's pid or -errno. CLONE_VM and CLONE_CLEAR_SIGHAND are
/// added to the flags.
long start_child(clone_args arguments, std::span<std::byte> stack, child_main main, void* argument);

/// Runs main(argument) in a helper which shares descriptors too, waits for it, answers what it
/// returned (0..255) or -errno. Helpers nest one deep: the child that becomes aether uses them
/// itself.
long run_helper(std::size_t depth, unsigned long flags, child_main main, void* argument);

/// Waits for a child of ours, whatever its exit signal; the wait status or -errno.
long wait_child(long pid);

std::span<std::byte> child_stack(std::size_t depth);

}  // namespace dsec::launcher

// What the floor's files share: mounts by descriptor, children on shared memory, what prepare()
// made.
#pragma once

#include <linux/mount.h>
#include <time.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "floor/sys.hpp"

namespace floor_bench {

inline constexpr int max_layers = 16;
/// Descriptors that outlive a create lie from here on: a child takes a copy of those below only, so
/// that it costs the same however many sandboxes live.
inline constexpr int first_kept = 256;

struct setup {
  int template_ns = -1;             // a mount namespace with one empty mount
  int aether = -1;                  // its program
  std::vector<std::string> lowers;  // attached, topmost first
};
extern setup ready;

inline double now_ms() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}

inline constexpr unsigned no_programs = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;

struct option {
  const char* key;
  const char* value;  // nullptr: a flag
};

int open_at(int dir, const char* path, int flags);
int make_fs(const char* type, std::initializer_list<option> options, unsigned attributes);
void attach(int mount, int dir, const char* path);
/// A detached copy of the mount at `path`; the second one with the ids of a user namespace.
int clone_mount(int dir, const char* path);
int id_mapped(const char* path, int user_namespace);
/// The file systems that every sandbox has of its own, beside /proc.
int make_devpts();
int make_shm();

/// clone3 with CLONE_VM and `flags`; the child runs main(argument) on a stack of its own, one per
/// depth of nesting. Returns the pid.
long start_child(int depth, unsigned long flags, int cgroup, int (*main)(void*), void* argument);
/// Ends this process when the child did not end with 0.
void wait_child(long pid);
/// A child with a shared table of descriptors, waited for.
void run_helper(unsigned long flags, int (*main)(void*), void* argument, int depth = 0);

}  // namespace floor_bench

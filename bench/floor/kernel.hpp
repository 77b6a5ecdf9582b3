// What the floor's files share: mounts by descriptor, children on shared memory, what prepare()
// made.
#pragma once

#include <initializer_list>
#include <string>
#include <vector>

#include "floor/sys.hpp"

namespace floor_bench {

inline constexpr int max_layers = 16;

struct setup {
  int template_ns = -1;             // a mount namespace with one empty mount
  int aether = -1;                  // its program
  std::vector<std::string> lowers;  // attached, topmost first
};
extern setup ready;

struct option {
  const char* key;
  const char* value;  // nullptr: a flag
};

int open_at(int dir, const char* path, int flags);
int make_fs(const char* type, std::initializer_list<option> options, unsigned attributes);
void attach(int mount, int dir, const char* path);

/// clone3 with CLONE_VM, CLONE_VFORK and `flags`; the child runs main(argument) on a stack of its
/// own, one per depth of nesting. Returns the pid.
long start_child(int depth, unsigned long flags, int cgroup, int (*main)(void*), void* argument);
/// The same with a shared table of descriptors, waited for.
void run_helper(unsigned long flags, int (*main)(void*), void* argument, int depth = 0);

}  // namespace floor_bench

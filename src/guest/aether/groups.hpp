// The commands' groups on the v2 tree: <slot>/cmd/<n>, made here as they are needed and used again
// once empty, since making one costs more than all else that aether does for a command. Owned by
// the proxy; one thread. The group's cgroup.procs is writable for aether's group id, which only
// aether and its spawner have, so that the spawner may clone into it (cgroups(7), delegation) and
// no command may move itself.
#pragma once

#include <stdint.h>

#include "guest/aether/fd.hpp"

namespace dsec::guest::aether {

class groups {
 public:
  static constexpr int capacity =
      320;  // running commands, and groups whose killed processes are still dying
  static constexpr int kept_ready = 4;

  struct taken {
    int index = -1;
    unique_fd dir;  // for CLONE_INTO_CGROUP
    long error = 0;
  };

  /// Makes one group ready ahead of its use. `count_memory`: the memory controller is handed down
  /// to the commands' groups (version 2), so each is ended as a whole when memory is short.
  void prepare(bool count_memory);
  /// A ready group, else a new one.
  taken take();
  /// Removes those that are ready: nothing is expected soon.
  void shrink();
  /// SIGKILL for everything in the group: cgroup.kill. Never waits.
  void kill(int index);
  /// Whether a process lives in it; an unreadable group counts as empty.
  static bool populated(int index);
  /// How many processes of the group died for want of memory. Such a group is not used again.
  uint64_t oom_kills(int index);
  /// The command is over. What still lives is killed, now and until the group is empty.
  void give_back(int index);
  void kill_used();
  /// Looks after groups that were given back and not yet empty. Call at next_check().
  void check(uint64_t now);
  [[nodiscard]] uint64_t next_check() const { return dying_ == 0 ? UINT64_MAX : next_check_; }

 private:
  enum class state : uint8_t { absent, ready, used, dying };

  [[nodiscard]] long make(int index) const;
  int find(state wanted) const;
  void retire(int index);
  void watch(int index);

  state states_[capacity] = {};
  bool killed_[capacity] = {};  // by us or for want of memory: not to be used again
  bool count_memory_ = false;
  int ready_ = 0;
  int dying_ = 0;
  uint64_t next_check_ = 0;
  uint64_t check_interval_ = 0;
};

}  // namespace dsec::guest::aether

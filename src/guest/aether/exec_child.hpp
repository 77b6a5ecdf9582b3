// What a command's process does between clone and exec: runs in the child of the spawner, in the
// command's group, with the inner root's credentials, perhaps in the spawner's memory (then it
// writes to its slab only). Any failure goes over the status pipe and ends the process with 127.
// Root inside may stop or kill it at every step; nobody waits for it without a limit.
#pragma once

#include "guest/aether/spawner_protocol.hpp"

namespace dsec::guest::aether {

/// All a child needs; lives in its slab.
struct child_plan {
  start_request request;
  command_strings strings;
  int fds[start_fd_max];
  int first_tasks_fd;
  uint32_t tasks_count;
};

[[noreturn]] void run_child(child_plan& plan);

/// Ends the child with a failure on its status pipe.
[[noreturn]] void child_fails(const child_plan& plan, failure why, long negative_errno);

}  // namespace dsec::guest::aether

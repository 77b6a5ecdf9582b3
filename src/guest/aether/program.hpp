// The last step of a program or shell command: finding it as execvp(3) does, with the command's own
// PATH, and execve. Runs in the child with the user's credentials; a failure goes over the status
// pipe.
#pragma once

#include "guest/aether/exec_child.hpp"
#include "guest/aether/users.hpp"

namespace dsec::guest::aether {

[[noreturn]] void run_program(child_plan& plan, const identity& who);
/// /bin/bash -c SCRIPT, else /bin/sh -c SCRIPT, else failed{no_shell}.
[[noreturn]] void run_shell(child_plan& plan, const identity& who);

}  // namespace dsec::guest::aether

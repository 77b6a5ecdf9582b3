// The commands read_file and write_file (guest/channel.hpp): the spawner's own code, run like any
// command in its group with the user's credentials, in a copy of the spawner's memory. Until the
// file is open a failure is failed{exec, errno}; afterwards the errno is the exit code. Only
// regular files: a FIFO or device would hold the helper up or act on being read.
#pragma once

#include "guest/aether/exec_child.hpp"

namespace dsec::guest::aether {

[[noreturn]] void read_file(const child_plan& plan);
[[noreturn]] void write_file(const child_plan& plan);

}  // namespace dsec::guest::aether

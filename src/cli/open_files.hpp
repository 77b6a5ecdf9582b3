// How many open files a worker needs: of dsecd and its connections, and of a sandbox in which
// nothing runs.
#pragma once

#include <sys/resource.h>

namespace dsec::cli {

inline constexpr rlim_t own_files = 512, files_of_a_sandbox = 4;

}  // namespace dsec::cli

// Runs the embedded program that unpacks layers (fs/unpack): hostile bytes are read by a process
// that has given up all but one directory. Blocking, up to unpack_timeout; any thread; needs root.
// Errors are the program's own; io also when the disk is full.
#pragma once

#include <chrono>

#include "base/result.hpp"
#include "fs/unpack/plan.hpp"

namespace dsec::fs {

inline constexpr std::chrono::minutes unpack_timeout{30};

base::result<unpack::report> unpack_image(const unpack::plan& p);

}  // namespace dsec::fs

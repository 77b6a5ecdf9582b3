// How much memory this worker may still hand out: the host's MemAvailable, or what is left below
// the memory limit of a group dsecd itself runs in, whichever is less. Reads /proc and /sys, a
// fraction of a millisecond; call it on a pool (memory.stat may have to sum over many groups).
#pragma once

#include <cstdint>
#include <filesystem>

#include "base/result.hpp"

namespace dsec::actors {

struct memory_reading {
  std::uint64_t total = 0;      // bytes there are in all, own group's limit counted
  std::uint64_t available = 0;  // bytes that can be used without swapping or killing
};

/// `root` stands before /proc and /sys, for tests.
base::result<memory_reading> read_node_memory(const std::filesystem::path& root = "/");

}  // namespace dsec::actors

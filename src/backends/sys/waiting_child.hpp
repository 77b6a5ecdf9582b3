// A child process that only waits to be killed, and is when its owner goes: something to put into
// groups and namespaces. It runs no code that a fork of a threaded process could upset. Any thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <utility>

#include "base/result.hpp"

namespace dsec::sys {

class waiting_child {
 public:
  /// clone3(2) with `flags`; `group` is the descriptor for CLONE_INTO_CGROUP, else -1.
  static base::result<waiting_child> start(std::uint64_t flags, int group = -1);
  /// In a user namespace of its own in which 0 .. 65535 are `first_id` and those after it outside.
  static base::result<waiting_child> with_mapped_ids(std::uint32_t first_id);

  waiting_child(waiting_child&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  waiting_child& operator=(waiting_child&&) = delete;
  ~waiting_child();

  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  explicit waiting_child(pid_t pid) : pid_(pid) {}
  pid_t pid_;
};

}  // namespace dsec::sys

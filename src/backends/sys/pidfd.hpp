// Processes by pidfd_open(2): a signal never hits a reused pid. Any thread.
#pragma once

#include <sys/types.h>

#include <chrono>

#include "backends/sys/unique_fd.hpp"
#include "base/result.hpp"

namespace dsec::sys {

using deadline = std::chrono::steady_clock::time_point;

inline deadline after(std::chrono::milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}
/// Milliseconds left for poll(2), rounded up; 0 when the deadline has passed.
int remaining_ms(deadline until);

base::result<unique_fd> open_pidfd(pid_t pid);

/// pidfd_send_signal(2); a process that has ended is fine.
base::result<void> signal_process(int pidfd, int signal);

/// Whether the process has ended (it may still be a zombie of its parent) by `until`.
bool wait_ended(int pidfd, deadline until);

}  // namespace dsec::sys

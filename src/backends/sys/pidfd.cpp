#include "backends/sys/pidfd.hpp"

#include <poll.h>
#include <sys/syscall.h>

#include <algorithm>
#include <cerrno>
#include <string>

namespace dsec::sys {

using base::fail_errno;
using base::result;

int remaining_ms(deadline until) {
  const auto left = until - std::chrono::steady_clock::now();
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
  return static_cast<int>(std::clamp<std::int64_t>(ms, 0, 1'000'000'000));
}

result<unique_fd> open_pidfd(pid_t pid) {
  unique_fd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!fd) return fail_errno("cannot open process " + std::to_string(pid));
  return fd;
}

result<void> signal_process(int pidfd, int signal) {
  if (::syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0) != 0 && errno != ESRCH)
    return fail_errno("cannot signal a process");
  return {};
}

bool wait_ended(int pidfd, deadline until) {
  pollfd p{pidfd, POLLIN, 0};
  while (true) {
    const int n = ::poll(&p, 1, remaining_ms(until));
    if (n > 0) return true;
    if (n == 0) return false;
    if (errno != EINTR) return false;
  }
}

}  // namespace dsec::sys

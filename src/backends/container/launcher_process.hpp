// The launcher as a process: starts the program that is carried inside this binary
// (guest/launch.hpp says with what), takes over one that an earlier dsecd started. Blocking, any
// thread.
#pragma once

#include <sys/types.h>

#include <utility>

#include "backends/sys/unique_fd.hpp"
#include "base/paths.hpp"
#include "base/result.hpp"

namespace dsec::container {

/// The destructor kills it, unless it was left: a launcher outlives the death of dsecd, not its
/// wish to end it.
class launcher_process {
 public:
  /// `layers_ns`: the layers' namespace of a launcher that died, or -1. Replaces whatever socket is
  /// there.
  static base::result<launcher_process> start(const base::paths& paths, int layers_ns);

  /// One that this process did not start: it is known by its pidfd and never waited for as a child.
  static base::result<launcher_process> take_over(pid_t pid);

  launcher_process(launcher_process&& other) noexcept
      : pid_(std::exchange(other.pid_, 0)),
        pidfd_(std::move(other.pidfd_)),
        is_child_(other.is_child_) {}
  launcher_process& operator=(launcher_process&&) = delete;
  ~launcher_process();

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Connects to the socket it was started with; errors are those of sys::connect_datagram().
  static base::result<sys::unique_fd> connect(const base::paths& paths);

  /// SIGKILL, unless it has ended by itself, and collects it. errc::deadline_exceeded when it does
  /// not die, as a process in an uninterruptible call; may be called again.
  base::result<void> end();
  /// From now on it is nobody's, and runs on.
  void leave();

 private:
  launcher_process(pid_t pid, sys::unique_fd pidfd, bool is_child)
      : pid_(pid), pidfd_(std::move(pidfd)), is_child_(is_child) {}

  pid_t pid_;
  sys::unique_fd pidfd_;
  bool is_child_;
};

}  // namespace dsec::container

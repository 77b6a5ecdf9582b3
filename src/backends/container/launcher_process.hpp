// Starts the launcher program that is carried inside this binary (guest/launch.hpp says with what),
// owns it as a child, and knows how to recognise one of a given state directory again. Blocking,
// any thread.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "backends/sys/unique_fd.hpp"
#include "base/paths.hpp"
#include "base/result.hpp"

namespace dsec::container {

/// A child of this process. The destructor kills it: a launcher outlives the death of dsecd, not
/// its wish to end it.
class launcher_process {
 public:
  /// `layers_ns`: the layers' namespace of a launcher that died, or -1. Replaces whatever socket is
  /// there.
  static base::result<launcher_process> start(const base::paths& paths, int layers_ns);

  launcher_process(launcher_process&& other) noexcept
      : pid_(std::exchange(other.pid_, 0)), pidfd_(std::move(other.pidfd_)) {}
  launcher_process& operator=(launcher_process&&) = delete;
  ~launcher_process();

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// Connects to the socket it was started with.
  static base::result<sys::unique_fd> connect(const base::paths& paths);

  /// SIGKILL, unless it has ended by itself, and collects it. errc::deadline_exceeded when it does
  /// not die, as a process in an uninterruptible call; may be called again.
  base::result<void> end();

 private:
  launcher_process(pid_t pid, sys::unique_fd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}

  pid_t pid_;
  sys::unique_fd pidfd_;
};

/// pidfds of the launchers that were started for this state directory and still run.
base::result<std::vector<sys::unique_fd>> find_launchers(const std::filesystem::path& state);

}  // namespace dsec::container

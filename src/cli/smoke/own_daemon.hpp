// A dsecd of the smoke test's own, started from this very program. Killed when its owner goes.
// Blocking; main thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <utility>

#include "base/config.hpp"
#include "base/result.hpp"

namespace dsec::cli::smoke {

class own_daemon {
 public:
  /// `dsecd serve --config file`; what it says goes to `log`. Returns when it serves; an error has
  /// the end of the log.
  static base::result<own_daemon> start(const base::config& c, const std::filesystem::path& file,
                                        const std::filesystem::path& log);
  own_daemon(own_daemon&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  own_daemon& operator=(own_daemon&& other) noexcept {
    std::swap(pid_, other.pid_);
    return *this;
  }
  ~own_daemon() { kill(); }

  [[nodiscard]] pid_t pid() const { return pid_; }
  /// SIGKILL, and gone when this returns.
  void kill();
  /// The signal, then its exit status; killed after `patience`.
  base::result<void> end(int signal, std::chrono::milliseconds patience);

 private:
  explicit own_daemon(pid_t pid) : pid_(pid) {}

  pid_t pid_ = 0;
};

}  // namespace dsec::cli::smoke

// The state directory as its running daemon holds it: 0700, locked, with the instance's name, API
// key and URL. Blocking; main thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/config.hpp"
#include "base/paths.hpp"
#include "base/result.hpp"

namespace dsec::cli {

/// Held for as long as the daemon runs; releases the lock and removes the URL file when destroyed.
class state_lock {
 public:
  /// Makes the directory, takes the lock, checks that it belongs to `instance`.
  /// errc::already_exists with the holder's pid when another daemon has it.
  static base::result<state_lock> acquire(const base::paths& paths, const std::string& instance);

  state_lock(state_lock&& other) noexcept;
  state_lock(const state_lock&) = delete;
  state_lock& operator=(const state_lock&) = delete;
  state_lock& operator=(state_lock&&) = delete;
  ~state_lock();

  /// Says where the gateway listens, for clients without DSEC_URL.
  base::result<void> publish_url(const std::string& url) const;

 private:
  state_lock(base::paths paths, int fd) : paths_(std::move(paths)), fd_(fd) {}

  base::paths paths_;
  int fd_;
};

/// The pid of the daemon that holds the directory's lock, if any.
base::result<std::optional<pid_t>> lock_holder(const base::paths& paths);

/// The instance that has claimed the directory; empty when none has.
std::string instance_of(const base::paths& paths);

/// The API key of this state directory; made (256 random bits, 0600) when there is none.
base::result<std::string> load_or_make_api_key(const base::paths& paths);

}  // namespace dsec::cli

// The state directory as whoever works on it holds it: 0700, locked, with the instance's name, API
// key and URL. Blocking; main thread.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "base/config.hpp"
#include "base/paths.hpp"
#include "base/result.hpp"

namespace dsec::cli {

/// What a state directory is held for.
enum class lock_use {
  serve,  // by a daemon
  clear,  // by `stop --all` or `purge`, so that no daemon takes up what they end
};

/// Released when destroyed.
class state_lock {
 public:
  /// Makes the directory (to serve), takes the lock, checks that it belongs to `instance`.
  /// errc::already_exists with the holder's pid when another process has it.
  static base::result<state_lock> acquire(const base::paths& paths, const std::string& instance,
                                          lock_use use);

  state_lock(state_lock&& other) noexcept;
  state_lock(const state_lock&) = delete;
  state_lock& operator=(const state_lock&) = delete;
  state_lock& operator=(state_lock&&) = delete;
  ~state_lock();

  /// Says where the gateway listens, for clients without DSEC_URL. What stands there already is not
  /// written again: there may be no room on the disk.
  base::result<void> publish_url(const std::string& url) const;

 private:
  state_lock(base::paths paths, int fd) : paths_(std::move(paths)), fd_(fd) {}

  base::paths paths_;
  int fd_;
};

struct lock_owner {
  pid_t pid = 0;
  lock_use use = lock_use::serve;
  bool operator==(const lock_owner&) const = default;
};
/// Who holds the directory's lock, if anybody does. He may have ended when this returns.
base::result<std::optional<lock_owner>> find_lock_owner(const base::paths& paths);

/// The instance that has claimed the directory; empty when none has.
std::string instance_of(const base::paths& paths);

/// The local root's API key, in a file of its own (0600); made when there is none.
base::result<std::string> load_or_make_api_key(const base::paths& paths);

}  // namespace dsec::cli

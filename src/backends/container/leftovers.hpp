// What an earlier run of the same instance and state directory left and recover() did not take
// over: sandboxes that live or have ended, ready slots, homes and writable layers. Owned by the
// backend, the state directory's lock is held. Thread-safe; end() blocks.
#pragma once

#include <atomic>
#include <mutex>
#include <set>
#include <string>

#include "backends/container/sandbox_host.hpp"
#include "base/result.hpp"

namespace dsec::container {

class leftovers {
 public:
  explicit leftovers(sandbox_host& host) : host_(host) {}

  /// Kills launchers and sandboxes that are not ours, removes groups and writable layers; spools
  /// stay. Groups whose processes do not die stay too, and keep their slots from being used. Names
  /// what stays; the next call goes on with that. After the last recover().
  base::result<void> end();
  /// Whether all is known that is left, so that what is started from now on is not taken for it.
  [[nodiscard]] bool known() const { return known_; }

 private:
  base::result<void> kill_all();
  base::result<void> end_rest(sys::deadline until);
  base::result<void> drop_files();

  sandbox_host& host_;
  std::mutex mutex_;  // one end() at a time
  std::atomic<bool> known_{false};
  std::set<std::string> slots_;  // that are still to be ended
};

}  // namespace dsec::container

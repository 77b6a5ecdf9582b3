// SIGHUP: what may change while dsecd runs is read again. All or nothing: whatever cannot be read
// or is wrong leaves everything as it was, and the log says what it is. Main thread.
#pragma once

#include <signal.h>

#include <functional>

#include "actors/system.hpp"
#include "auth/key_watch.hpp"
#include "base/config.hpp"
#include "base/paths.hpp"
#include "base/result.hpp"

namespace dsec::cli {

class reloader {
 public:
  using reader = std::function<base::result<base::config>()>;

  /// `running` is the configuration of `node`, `read` what it is made of.
  reloader(base::config running, reader read, actors::node& node, auth::key_watch& keys)
      : running_(std::move(running)), read_(std::move(read)), node_(node), keys_(keys) {}

  void reload();
  /// Waits for one of these signals (blocked) that is not SIGHUP, which reloads. 0: none came
  /// within `patience`, or the wait was interrupted.
  int next_stop(const sigset_t& signals, const timespec* patience = nullptr);

 private:
  base::result<void> try_reload();
  void take_over(const base::config& wanted);

  base::config running_;
  const reader read_;
  actors::node& node_;
  auth::key_watch& keys_;
};

}  // namespace dsec::cli

// Failure points, compiled in only with -DDSEC_FAILPOINTS (presets dev, asan, tsan). Which ones
// fire comes from the environment variable DSEC_FAILPOINTS="name=error,other=kill" or from arm().
// Thread-safe.
//
//   error      the step returns an injected errc::internal
//   kill       the process kills itself with SIGKILL
//   error:P%   the same for about P percent of the times that it is come to (0.01 to 100), in an
//   kill:P%    order that DSEC_FAILPOINTS_SEED (default 1) and the point's name determine
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace dsec::base::failpoint {

#ifdef DSEC_FAILPOINTS
/// Arms `name` to fire once (or always, with `sticky`). Action is one of the above; one with a
/// percentage is always sticky. An unknown action ends the process: a test that injects nothing
/// would pass for the wrong reason.
void arm(std::string_view name, std::string_view action, bool sticky = false);
/// Runs `then` in the thread that comes to `name`, once, and lets the step go on: for what happens
/// between two steps.
void arm(std::string_view name, std::function<void()> then);
void disarm_all();
/// Fires if armed.
result<void> check(std::string_view name);
#else
inline result<void> check(std::string_view) {
  return {};
}
#endif

}  // namespace dsec::base::failpoint

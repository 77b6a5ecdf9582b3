// Waiting at start for a launcher that says nothing. It holds sandboxes, so it is not killed for
// being slow: one that is stopped is continued, one that waits for something is waited for, and
// every few seconds the log says for whom. Blocking; one thread.
#pragma once

#include <chrono>

#include "backends/sys/pidfd.hpp"
#include "base/error.hpp"
#include "base/paths.hpp"

namespace dsec::container {

class launcher_vigil {
 public:
  launcher_vigil(base::paths paths, std::chrono::milliseconds limit);

  /// To be asked now and then; false: it has been waited for long enough.
  bool go_on();
  /// A moment later.
  bool go_on_after_a_pause();
  /// What to say when it is over: whom, and what to do.
  [[nodiscard]] base::error silence() const;

 private:
  const base::paths paths_;
  const sys::deadline began_, until_;
  sys::deadline next_word_;
};

}  // namespace dsec::container

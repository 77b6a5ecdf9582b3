// Test builds only (-DDSEC_FAILPOINTS): failure points and a clock for the named steps of a create,
// both chosen by the environment at start. In other builds everything here is empty.
//
//   DSEC_LAUNCHER_FAIL="step=error" or "step=kill"   the step fails with EIO, or the launcher kills
//                                                    itself there
//   DSEC_LAUNCHER_TIMES=1                            the log gets the microseconds of every step of
//                                                    each create
#pragma once

#include <cstdint>

#include "guest/launcher/status.hpp"

namespace dsec::launcher {

#ifdef DSEC_FAILPOINTS

/// Reads the environment.
void instrument_start();
status failpoint(const char* step);
void log_step_times();

class step_timer {
 public:
  explicit step_timer(const char* step);
  ~step_timer();
  step_timer(const step_timer&) = delete;
  step_timer& operator=(const step_timer&) = delete;

 private:
  const char* step_;
  std::uint64_t start_;
};

#else

inline void instrument_start() {}
inline status failpoint(const char*) {
  return {};
}
inline void log_step_times() {}
struct step_timer {
  explicit step_timer(const char*) {}
};

#endif

}  // namespace dsec::launcher

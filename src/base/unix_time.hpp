// Moments as they are stored and sent: milliseconds since 1970, UTC. Pure.
#pragma once

#include <chrono>
#include <cstdint>

namespace dsec::base {

inline std::uint64_t unix_ms(std::chrono::system_clock::time_point t) {
  return static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(t.time_since_epoch()).count());
}

}  // namespace dsec::base

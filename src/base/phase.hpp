// The life cycle of a sandbox: phases, causes of death, and the one table of legal edges.
// Pure functions, any thread. Names are stable: they are stored and travel on the wire.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.hpp"

namespace dsec::base {

enum class phase : std::uint8_t {
  requested = 0,  // record exists, nothing else does
  admitted = 1,   // resources are promised
  preparing = 2,  // layers and slot are being taken
  starting = 3,   // processes are being started
  running = 4,
  paused = 5,
  checkpointing = 6,  // from running or paused; goes back to where it came from
  migrating = 7,
  stopping = 8,
  stopped = 9,  // terminal: ended on request
  failed = 10,  // terminal: ended by itself; the cause says why
};
inline constexpr int phase_count = 11;

/// Why a sandbox ended. The first cause wins.
enum class cause : std::uint8_t {
  none = 0,
  exit = 1,
  oom = 2,
  ttl = 3,
  killed = 4,
  fingerprint = 5,
  precheck = 6,
  lost = 7,
  disk_quota = 8,
  output_limit = 9,
  backend = 10,
};

std::string_view to_string(phase p);
std::string_view to_string(cause c);
result<phase> parse_phase(std::string_view name);
result<cause> parse_cause(std::string_view name);

bool is_terminal(phase p);

/// Whether the table has the edge from -> to. `stopping` can be reached from every phase that is
/// not terminal.
bool can_transition(phase from, phase to);

}  // namespace dsec::base

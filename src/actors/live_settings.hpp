// What of the configuration may change while a node runs (SIGHUP). Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/config.hpp"

namespace dsec::actors {

struct live_settings {
  std::atomic<std::uint32_t> retention_seconds;
  std::atomic<std::uint32_t> default_deadline_ms, lease_seconds;  // of new connections

  live_settings() { take({}); }
  void take(const base::config& c) {
    retention_seconds = c.node.retention_seconds;
    default_deadline_ms = c.gateway.default_deadline_ms;
    lease_seconds = c.gateway.lease_seconds;
  }
};

}  // namespace dsec::actors

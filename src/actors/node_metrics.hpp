// What a node counts, for /metrics. One per node, shared by all who count; every member is
// thread-safe and free of locks (base/metrics.hpp).
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <string>

#include "backends/backend.hpp"
#include "base/error.hpp"
#include "base/metrics.hpp"
#include "base/phase.hpp"
#include "proto/client.capnp.h"
#include "proto/frame.hpp"

namespace dsec::actors {

class health_board;

struct node_metrics {
  static constexpr std::size_t most_kinds = 64, most_codes = 32;  // beyond: counted as the last

  /// Answered requests of one kind.
  struct request_row {
    std::array<base::counter, most_codes> by_code;
    base::histogram took;
  };

  std::array<request_row, most_kinds> requests;
  base::gauge connections;
  base::counter connections_opened, received_bytes, sent_bytes;
  std::array<base::gauge, base::phase_count> sandboxes;
  base::gauge creates_waiting, admitted_memory_bytes;
  base::histogram scheduling_delay;

  void count_request(proto::Request::Body::Which which, const proto::frame& answer,
                     std::chrono::microseconds took);
  /// A sandbox is in this phase, or not any more.
  void count_phase(base::phase p, int by) { sandboxes.at(static_cast<std::size_t>(p)).add(by); }
};

/// All of it, with what pools, workers and the backend say now, in Prometheus' text format. A
/// coordinator has no backend. Blocks shortly on locks of pools; any thread.
std::string metrics_page(const node_metrics& counted, health_board& health,
                         const backends::backend* backend);

}  // namespace dsec::actors

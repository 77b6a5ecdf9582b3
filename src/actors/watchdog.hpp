// Measures how late actors get to run: sleeps for a known time and looks how much longer it took.
// More than max_delay means that handlers block or the host is overloaded; it is logged as an error
// and counted (tests assert that the count stays 0). Also has the pools abandon stuck jobs, and
// makes events of what changes without anybody's doing: launchers, health. One per node, restarted
// by the root.
#pragma once

#include <caf/typed_event_based_actor.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "actors/health.hpp"
#include "actors/interfaces.hpp"
#include "actors/node_metrics.hpp"
#include "actors/worker.hpp"

namespace dsec::actors {

/// To oneself.
struct beat {
  time_point due;
};
using watchdog_actor = caf::typed_actor<caf::reacts_to<beat>>;

struct watchdog_args {
  std::shared_ptr<health_board> health;
  std::shared_ptr<node_metrics> metrics;
  worker_ptr env{};  // whose events they are; none on a coordinator
};

struct watchdog_state {
  static constexpr const char* name = "watchdog";
  static constexpr std::chrono::milliseconds period{250};
  static constexpr std::chrono::milliseconds max_delay{50};

  watchdog_actor::pointer self;
  watchdog_args args;
  backends::backend_stats told;         // deaths and restarts of launchers that were told of
  std::set<std::string> unhealthy_for;  // likewise: subjects

  explicit watchdog_state(watchdog_actor::pointer s) : self(s) {}
  void begin(watchdog_args a);
  void sleep();
  void on_beat(const beat& b);

 private:
  void tell_of_launchers();
  void tell_of_health();
};

watchdog_actor::behavior_type watchdog(watchdog_actor::stateful_pointer<watchdog_state> self,
                                       watchdog_args args);

}  // namespace dsec::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::beat)

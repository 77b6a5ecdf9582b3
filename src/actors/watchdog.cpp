#include "actors/watchdog.hpp"

#include <utility>

#include "actors/runtime.hpp"
#include "base/log.hpp"

namespace dsec::actors {

void watchdog_state::begin(watchdog_args a) {
  args = std::move(a);
  if (args.env) told = args.env->backend->stats();
  sleep();
}

void watchdog_state::sleep() {
  self->delayed_send(self, period, beat{self->clock().now() + period});
}

void watchdog_state::on_beat(const beat& b) {
  const auto late =
      std::chrono::duration_cast<std::chrono::microseconds>(self->clock().now() - b.due);
  args.health->note_beat(late.count());
  args.metrics->scheduling_delay.observe(late);
  if (late > max_delay) {
    args.health->count_late_beat();
    base::log::error("actors_delayed", {{"delay_us", late.count()}});
  }
  args.health->check_pools();
  if (args.env) {
    tell_of_launchers();
    tell_of_health();
  }
  sleep();
}

void watchdog_state::tell_of_launchers() {
  const auto now = args.env->backend->stats();
  const auto tell = [&](event_kind kind, std::uint64_t before, std::uint64_t after) {
    for (; before < after; ++before) args.env->events->add({.kind = kind});
  };
  tell(event_kind::launcher_died, told.launcher_deaths, now.launcher_deaths);
  tell(event_kind::launcher_restarted, told.launcher_restarts, now.launcher_restarts);
  told = now;
}

void watchdog_state::tell_of_health() {
  const auto reasons = args.health->reasons();
  for (const auto& [subject, reason] : reasons) {
    if (unhealthy_for.insert(subject).second)
      args.env->events->add(
          {.kind = event_kind::node_unhealthy, .detail = subject + ": " + reason});
  }
  std::erase_if(unhealthy_for, [&](const std::string& subject) {
    if (reasons.contains(subject)) return false;
    args.env->events->add({.kind = event_kind::node_healthy, .detail = subject});
    return true;
  });
}

watchdog_actor::behavior_type watchdog(watchdog_actor::stateful_pointer<watchdog_state> self,
                                       watchdog_args args) {
  install_handlers(self);
  self->state.begin(std::move(args));
  return {[self](const beat& b) { self->state.on_beat(b); }};
}

}  // namespace dsec::actors

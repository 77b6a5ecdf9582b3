#include "actors/watchdog.hpp"

#include <utility>

#include "actors/runtime.hpp"
#include "base/log.hpp"

namespace dsec::actors {

void watchdog_state::sleep() {
  self->delayed_send(self, period, beat{self->clock().now() + period});
}

void watchdog_state::on_beat(const beat& b) {
  const auto late =
      std::chrono::duration_cast<std::chrono::microseconds>(self->clock().now() - b.due);
  health->note_beat(late.count());
  if (late > max_delay) {
    health->count_late_beat();
    base::log::error("actors_delayed", {{"delay_us", late.count()}});
  }
  health->check_pools();
  sleep();
}

watchdog_actor::behavior_type watchdog(watchdog_actor::stateful_pointer<watchdog_state> self,
                                       std::shared_ptr<health_board> health) {
  install_handlers(self);
  self->state.health = std::move(health);
  self->state.sleep();
  return {[self](const beat& b) { self->state.on_beat(b); }};
}

}  // namespace dsec::actors

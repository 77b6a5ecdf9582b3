#include "actors/root_supervisor.hpp"

#include <caf/send.hpp>
#include <utility>

#include "actors/edge.hpp"
#include "actors/runtime.hpp"
#include "base/log.hpp"

namespace dsec::actors {

void root_state::begin(root_args a) {
  args = std::move(a);
  start_watchdog();
  start_edge();
  start_gateway();
}

void root_state::start_edge() {
  edge_now = self->spawn<caf::monitored>(edge, args.env, args.table);
  if (gateway_now) caf::anon_send(gateway_now, edge_is{edge_now});
}

void root_state::start_gateway() {
  gateway_now = self->spawn<caf::monitored>(gateway, args.env->config.node.name, edge_now);
  args.slot->set(gateway_now);
}

void root_state::start_watchdog() {
  watchdog_now = self->spawn<caf::monitored>(watchdog, args.env->health);
}

void root_state::on_down(const caf::down_msg& m) {
  const char* who = m.source == edge_now.address()      ? "edge"
                    : m.source == gateway_now.address() ? "gateway"
                                                        : "watchdog";
  base::log::error("actor_restarted", {{"actor", who}});
  args.env->health->count_restart();
  if (!restarts.spend(self->clock().now()))
    return args.give_up(std::string(who) + " died too often");
  if (m.source == edge_now.address()) {
    start_edge();
  } else if (m.source == gateway_now.address()) {
    start_gateway();
  } else {
    start_watchdog();
  }
}

void root_state::tell_children_to_exit() {
  args.slot->set({});
  caf::anon_send_exit(watchdog_now, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(gateway_now, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(edge_now, caf::exit_reason::user_shutdown);
}

root_actor::behavior_type root_supervisor(root_actor::stateful_pointer<root_state> self,
                                          root_args args) {
  install_handlers(self, {.down = [self](const caf::down_msg& m) { self->state.on_down(m); },
                          .exit = [self] { self->state.tell_children_to_exit(); }});
  self->state.begin(std::move(args));
  return {[self](get_roots) { return roots{self->state.edge_now, self->state.gateway_now}; }};
}

}  // namespace dsec::actors

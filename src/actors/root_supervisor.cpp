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
  args.env ? start_edge() : start_cluster();
  start_gateway();
  uplinks_now.resize(args.uplinks.size());
  for (std::size_t i = 0; i < uplinks_now.size(); ++i) start_uplink(i);
}

void root_state::start_edge() {
  edge_now = self->spawn<caf::monitored>(edge, args.env, args.table);
  if (gateway_now) caf::anon_send(gateway_now, front_is{edge_now});
  for (const auto& u : uplinks_now) caf::anon_send(u, edge_is{edge_now});
}

void root_state::start_cluster() {
  cluster_now = self->spawn<caf::monitored>(cluster, args.coordinator);
  args.cluster->set(cluster_now);
  if (gateway_now) caf::anon_send(gateway_now, front_is{cluster_now});
}

void root_state::start_uplink(std::size_t i) {
  uplinks_now[i] = self->spawn<caf::monitored>(uplink, args.uplinks[i], edge_now);
}

front_actor root_state::front() const {
  if (args.env) return edge_now;
  return cluster_now;
}

void root_state::start_gateway() {
  const auto edge_name = args.env ? args.env->config.node.name : std::string();
  gateway_now = self->spawn<caf::monitored>(gateway, edge_name, front());
  args.slot->set(gateway_now);
}

void root_state::start_watchdog() {
  watchdog_now =
      self->spawn<caf::monitored>(watchdog, watchdog_args{args.health(), args.metrics(), args.env});
}

const char* root_state::restart(const caf::actor_addr& dead, bool really) {
  const auto is = [&](const auto& a) { return a && dead == a.address(); };
  const auto start = [&](auto&& again, const char* who) {
    if (really) again();
    return who;
  };
  if (is(edge_now)) return start([&] { start_edge(); }, "edge");
  if (is(cluster_now)) return start([&] { start_cluster(); }, "cluster");
  if (is(gateway_now)) return start([&] { start_gateway(); }, "gateway");
  for (std::size_t i = 0; i < uplinks_now.size(); ++i) {
    if (is(uplinks_now[i])) return start([&] { start_uplink(i); }, "uplink");
  }
  return start([&] { start_watchdog(); }, "watchdog");
}

void root_state::on_down(const caf::down_msg& m) {
  const std::string who = restart(m.source, false);
  base::log::error("actor_restarted", {{"actor", who}});
  args.health()->count_restart();
  if (!restarts.spend(self->clock().now())) return args.give_up(who + " died too often");
  restart(m.source, true);
}

void root_state::tell_children_to_exit() {
  args.slot->set({});
  if (args.cluster) args.cluster->set({});
  const auto end = [](const auto& a) {
    if (a) caf::anon_send_exit(a, caf::exit_reason::user_shutdown);
  };
  end(watchdog_now);
  for (const auto& u : uplinks_now) end(u);
  end(gateway_now);
  end(edge_now);
  end(cluster_now);
}

root_actor::behavior_type root_supervisor(root_actor::stateful_pointer<root_state> self,
                                          root_args args) {
  install_handlers(self, {.down = [self](const caf::down_msg& m) { self->state.on_down(m); },
                          .exit = [self] { self->state.tell_children_to_exit(); }});
  self->state.begin(std::move(args));
  return {[self](get_roots) { return roots{self->state.edge_now, self->state.gateway_now}; }};
}

}  // namespace dsec::actors

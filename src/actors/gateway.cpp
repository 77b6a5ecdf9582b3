#include "actors/gateway.hpp"

#include <algorithm>
#include <caf/send.hpp>
#include <utility>

#include "actors/runtime.hpp"
#include "actors/waiter.hpp"
#include "base/ids.hpp"

namespace dsec::actors {

using base::errc;

gateway_state::~gateway_state() {
  for (const auto& [c, key] : connections)
    caf::anon_send(c, close_connection{"the gateway is restarting"});
  for (auto& p : closers) p.deliver(everything_closed{});
}

caf::result<reply> gateway_state::on_call(const call& c) {
  if (!front)
    return reply(error_reply(c.id, {errc::unavailable, "the edge is restarting; try again", 0}));
  return self->delegate(front, c);
}

caf::result<found_sandbox> gateway_state::on_find(const find_sandbox& m) {
  const auto named = base::edge_of(m.id);
  if (!named) return found_sandbox{{}, named.error()};
  if (!edge_name.empty() && *named != edge_name) {
    return found_sandbox{
        {},
        {errc::not_found, "sandbox '" + m.id + "' names edge '" + *named + "', which is unknown",
         0}};
  }
  if (!front) return found_sandbox{{}, {errc::unavailable, "the edge is restarting; try again", 0}};
  return self->delegate(front, m);
}

void gateway_state::on_opened(const connection_opened& m) {
  self->monitor(m.connection);
  connections.emplace(m.connection, m.key_id);
  if (!closers.empty()) caf::anon_send(m.connection, close_connection{"dsecd is stopping"});
}

void gateway_state::on_revoked(const keys_revoked& m) {
  for (const auto& [c, key] : connections) {
    if (std::find(m.ids.begin(), m.ids.end(), key) == m.ids.end()) continue;
    caf::anon_send(c, close_connection{"this API key was revoked", errc::unauthenticated});
  }
}

void gateway_state::on_down(const caf::down_msg& m) {
  std::erase_if(connections, [&](const auto& c) { return c.first.address() == m.source; });
  if (!connections.empty()) return;
  for (auto& p : std::exchange(closers, {})) p.deliver(everything_closed{});
}

caf::result<everything_closed> gateway_state::on_close() {
  if (connections.empty()) return everything_closed{};
  for (const auto& [c, key] : connections) caf::anon_send(c, close_connection{"dsecd is stopping"});
  closers.push_back(self->make_response_promise<everything_closed>());
  return closers.back();
}

void gateway_state::tell_children_to_exit() {
  for (const auto& [c, key] : connections) caf::anon_send_exit(c, caf::exit_reason::user_shutdown);
}

gateway_actor::behavior_type gateway(gateway_actor::stateful_pointer<gateway_state> self,
                                     std::string edge_name, front_actor front) {
  install_handlers(self, {.down = [self](const caf::down_msg& m) { self->state.on_down(m); },
                          .exit = [self] { self->state.tell_children_to_exit(); }});
  self->state.edge_name = std::move(edge_name);
  self->state.front = std::move(front);
  return {
      [self](const call& c) { return self->state.on_call(c); },
      [self](const find_sandbox& m) { return self->state.on_find(m); },
      [self](close_everything) { return self->state.on_close(); },
      [self](const creates_abandoned& m) {
        if (self->state.front) caf::anon_send(self->state.front, m);
      },
      [self](const front_is& m) { self->state.front = m.front; },
      [self](const connection_opened& m) { self->state.on_opened(m); },
      [self](const keys_revoked& m) { self->state.on_revoked(m); },
  };
}

connection_setup setup_of(gateway_actor gateway, std::string edge_name,
                          std::shared_ptr<lease_table> leases,
                          std::shared_ptr<node_metrics> metrics, const live_settings& live) {
  return {std::move(gateway),
          std::move(edge_name),
          std::move(leases),
          std::chrono::milliseconds(live.default_deadline_ms.load()),
          std::chrono::seconds(live.lease_seconds.load()),
          std::move(metrics)};
}

net::session_handler open_connection(caf::actor_system& system, connection_setup to,
                                     std::shared_ptr<net::ws_session> session,
                                     net::connection_info info) {
  auto from =
      std::make_shared<const caller>(caller{std::move(info.principal), std::move(info.peer), {}});
  const auto gateway = to.gateway;
  ws_conn_actor connection = system.spawn(
      ws_conn, ws_conn_args{std::move(session), std::move(from), std::move(to), false});
  caf::anon_send(gateway, connection_opened{connection, std::move(info.key_id)});
  return {.message =
              [connection](proto::frame f) {
                caf::anon_send(connection, frame_arrived{std::move(f), {}});
              },
          .malformed =
              [connection](base::error e) {
                caf::anon_send(connection, frame_malformed{std::move(e)});
              },
          .room = [connection] { caf::anon_send(connection, room_made{}); },
          .closed = [connection] { caf::anon_send(connection, connection_lost{}); }};
}

ws_conn_actor open_relayed_connection(caf::actor_system& system, connection_setup to,
                                      const std::shared_ptr<relay_session>& session,
                                      std::shared_ptr<const caller> from) {
  const auto gateway = to.gateway;
  ws_conn_actor connection =
      system.spawn(ws_conn, ws_conn_args{session, std::move(from), std::move(to), true});
  session->serve(connection);
  // Keys are the coordinator's business, which closes the channel.
  caf::anon_send(gateway, connection_opened{connection, {}});
  return connection;
}

}  // namespace dsec::actors

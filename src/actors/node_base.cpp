#include "actors/node_base.hpp"

#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <utility>

#include "actors/node_parts.hpp"

namespace dsec::actors {

node_base::node_base(const base::config& config, std::shared_ptr<auth::gate> gate,
                     std::function<void(const std::string& why)> give_up)
    : config_(config), gate_(std::move(gate)), give_up_(std::move(give_up)) {
  if (!give_up_) give_up_ = end_process;
  live_->take(config);
}

void node_base::keys_revoked(const std::vector<std::string>& ids) {
  if (const auto gateway = slot_->get()) caf::anon_send(gateway, actors::keys_revoked{ids});
}

base::result<std::function<void()>> node_base::load_certificate() {
  std::function<void()> use_for_links = [] {};
  if (connector_) {
    DSEC_TRY(use_for_links, connector_->read_certificate());
  }
  DSEC_TRY(auto use_at_door, listener_->load_certificate());
  return [use_for_links = std::move(use_for_links), use_at_door = std::move(use_at_door)] {
    use_at_door();
    use_for_links();
  };
}

void node_base::apply(const base::config& config) {
  live_->take(config);
  listener_->set_max_connections(config.gateway.max_connections);
}

void node_base::spawn_root(root_args args) {
  system_ = std::make_unique<caf::actor_system>(runtime_);
  root_ = system_->spawn(root_supervisor, std::move(args));
  terminator_ = system_->spawn(terminator, root_);
  // The gateway is there once the root answers.
  caf::scoped_actor self{*system_};
  self->request(root_, caf::infinite, get_roots{}).receive([](const roots&) {}, [](caf::error&) {});
}

base::result<void> node_base::listen(net::listener_callbacks callbacks,
                                     const std::filesystem::path& peer_ca) {
  DSEC_TRY(listener_,
           net::listener::start(config_.gateway, std::move(callbacks), net::heartbeat{}, peer_ca));
  return {};
}

net::session_handler node_base::open_client(const std::string& edge_name,
                                            const std::shared_ptr<lease_table>& leases,
                                            const std::shared_ptr<net::ws_session>& session,
                                            net::connection_info info) {
  const auto gateway = slot_->get();
  if (!gateway || health_->draining()) return turn_away(*session);
  const auto key = info.key_id;
  auto handler = open_connection(*system_, setup_of(gateway, edge_name, leases, metrics_, *live_),
                                 session, std::move(info));
  // One that was revoked after this connection had asked: either the gateway knows the connection
  // by the time it hears of that, or the gate knows of it here.
  if (!gate_->holds(key)) session->expel("this API key was revoked");
  return handler;
}

void node_base::end(std::chrono::milliseconds grace, shut_down how,
                    const std::function<void()>& rest) {
  if (!system_) return;
  grace_period watchdog(
      grace, [&] { give_up_("did not stop in " + std::to_string(grace.count()) + " ms"); });
  health_->set_draining();
  {
    caf::scoped_actor self{*system_};
    self->request(terminator_, caf::infinite, how)
        .receive([](shut_down_done) {}, [](caf::error&) {});
  }
  // No callback runs after this, so none meets an actor system that is gone.
  if (listener_) listener_->stop();
  if (connector_) connector_->stop();
  caf::anon_send_exit(terminator_, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(root_, caf::exit_reason::user_shutdown);
  terminator_ = nullptr;
  root_ = nullptr;
  system_.reset();  // waits for every actor
  rest();
}

}  // namespace dsec::actors

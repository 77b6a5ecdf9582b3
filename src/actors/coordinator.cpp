// A coordinator behind the node interface: listener, gateway, cluster, and a node actor per worker
// that opens a link.
#include <caf/actor_system.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <utility>

#include "actors/cluster.hpp"
#include "actors/gateway.hpp"
#include "actors/live_settings.hpp"
#include "actors/node.hpp"
#include "actors/node_parts.hpp"
#include "actors/root_supervisor.hpp"
#include "actors/runtime.hpp"
#include "actors/system.hpp"
#include "actors/terminator.hpp"
#include "base/log.hpp"
#include "net/listener.hpp"

namespace dsec::actors {
namespace {

class coordinator final : public node {
 public:
  coordinator(const base::config& config, coordinator_deps deps)
      : config_(config), deps_(std::move(deps)) {
    live_.take(config);
    if (!deps_.give_up) deps_.give_up = end_process;
  }
  ~coordinator() override { coordinator::stop(failed_start_grace); }
  coordinator(const coordinator&) = delete;
  coordinator& operator=(const coordinator&) = delete;

  base::result<void> start();
  [[nodiscard]] std::uint16_t port() const override { return listener_->port(); }
  void keys_revoked(const std::vector<std::string>& ids) override {
    if (const auto gateway = slot_->get()) caf::anon_send(gateway, actors::keys_revoked{ids});
  }
  base::result<void> reload_certificate() override { return listener_->reload_certificate(); }
  void apply(const base::config& config) override {
    live_.take(config);
    listener_->set_max_connections(config.gateway.max_connections);
  }
  void report_host(const std::string&) override {}
  void stop(std::chrono::milliseconds grace) override;
  void leave(std::chrono::milliseconds grace) override { stop(grace); }

 private:
  coordinator_ptr make_env();
  net::session_handler open_client(std::shared_ptr<net::ws_session> session,
                                   net::connection_info info);
  net::session_handler open_worker(std::shared_ptr<net::ws_session> session,
                                   const net::connection_info& info);

  base::config config_;  // as it was at the start
  live_settings live_;
  coordinator_deps deps_;
  std::shared_ptr<health_board> health_ = std::make_shared<health_board>();
  std::shared_ptr<base::worker_pool> pool_;
  std::shared_ptr<lease_table> leases_;
  std::shared_ptr<const std::string> secret_;
  std::shared_ptr<gateway_slot> slot_ = std::make_shared<gateway_slot>();
  std::shared_ptr<cluster_slot> cluster_ = std::make_shared<cluster_slot>();
  runtime_config runtime_;
  std::unique_ptr<caf::actor_system> system_;
  root_actor root_;
  terminator_actor terminator_;
  std::unique_ptr<net::listener> listener_;
};

coordinator_ptr coordinator::make_env() {
  pool_ = std::make_shared<base::worker_pool>(
      base::pool_options{.name = "copy", .threads = 2, .queue_bound = 65'536});
  health_->watch(pool_);
  leases_ = std::make_shared<lease_table>(
      [] { return std::chrono::steady_clock::now(); },
      [slot = cluster_](const std::string& principal, const lease& l, bool held) {
        if (const auto c = slot->get()) caf::anon_send(c, lease_changed{principal, l, held});
      });
  auto env = std::make_shared<coordinator_env>();
  env->copy_pool = pool_;
  env->health = health_;
  env->leases = leases_;
  env->known_edges = deps_.known_edges;
  env->save_edges = deps_.save_edges;
  env->candidates = config_.coordinator.candidates;
  env->lost_after = std::chrono::seconds(config_.coordinator.lost_after);
  env->default_limit_bytes = std::uint64_t{config_.sandbox.memory_mb} << 20U;
  return env;
}

net::session_handler coordinator::open_client(std::shared_ptr<net::ws_session> session,
                                              net::connection_info info) {
  const auto gateway = slot_->get();
  if (!gateway || health_->draining()) return turn_away(*session);
  connection_setup setup{gateway,
                         {},
                         leases_,
                         std::chrono::milliseconds(live_.default_deadline_ms.load()),
                         std::chrono::seconds(live_.lease_seconds.load())};
  return open_held(*system_, *deps_.gate, std::move(setup), std::move(session), std::move(info));
}

net::session_handler coordinator::open_worker(std::shared_ptr<net::ws_session> session,
                                              const net::connection_info& info) {
  const auto cluster = cluster_->get();
  if (!cluster || health_->draining()) return turn_away(*session);
  return open_node(*system_, {std::move(session), info.peer, secret_, cluster});
}

base::result<void> coordinator::start() {
  secret_ = std::make_shared<const std::string>(deps_.secret);
  root_args args{{}, {}, slot_, deps_.give_up, {}, make_env(), cluster_};
  system_ = std::make_unique<caf::actor_system>(runtime_);
  root_ = system_->spawn(root_supervisor, std::move(args));
  terminator_ = system_->spawn(terminator, root_);
  // The gateway is there once the root answers.
  caf::scoped_actor self{*system_};
  self->request(root_, caf::infinite, get_roots{}).receive([](const roots&) {}, [](caf::error&) {});
  net::listener_callbacks callbacks{
      .gate = deps_.gate,
      .opened = [this](auto session,
                       auto info) { return open_client(std::move(session), std::move(info)); },
      .get = [health = health_](std::string_view path) { return answer_get(*health, path); },
      .peer_opened = [this](auto session,
                            const auto& info) { return open_worker(std::move(session), info); }};
  DSEC_TRY(listener_, net::listener::start(config_.gateway, std::move(callbacks)));
  leases_->open();
  health_->expect_beats(longest_pause);
  health_->set_ready(true);
  base::log::info("ready", {{"port", listener_->port()}, {"role", "coordinator"}});
  return {};
}

void coordinator::stop(std::chrono::milliseconds grace) {
  if (!system_) return;
  grace_period watchdog(
      grace, [&] { deps_.give_up("did not stop in " + std::to_string(grace.count()) + " ms"); });
  health_->set_draining();
  {
    caf::scoped_actor self{*system_};
    self->request(terminator_, caf::infinite, shut_down{.leave = true})
        .receive([](shut_down_done) {}, [](caf::error&) {});
  }
  // No callback runs after this, so none meets an actor system that is gone.
  if (listener_) listener_->stop();
  caf::anon_send_exit(terminator_, caf::exit_reason::user_shutdown);
  caf::anon_send_exit(root_, caf::exit_reason::user_shutdown);
  terminator_ = nullptr;
  root_ = nullptr;
  system_.reset();  // waits for every actor
  pool_->stop();
  base::log::info("stopped");
}

}  // namespace

base::result<std::unique_ptr<node>> start_coordinator(const base::config& config,
                                                      coordinator_deps deps) {
  auto n = std::make_unique<coordinator>(config, std::move(deps));
  DSEC_CHECK(n->start());
  return n;
}

}  // namespace dsec::actors

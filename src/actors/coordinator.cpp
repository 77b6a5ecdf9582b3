// A coordinator behind the node interface: listener, gateway, cluster, and a node actor per worker
// that opens a link.
#include <caf/send.hpp>
#include <utility>

#include "actors/cluster.hpp"
#include "actors/node.hpp"
#include "actors/node_base.hpp"
#include "actors/node_parts.hpp"
#include "actors/system.hpp"
#include "base/log.hpp"

namespace dsec::actors {
namespace {

class coordinator final : public node_base {
 public:
  coordinator(const base::config& config, coordinator_deps deps)
      : node_base(config, deps.gate, deps.give_up), deps_(std::move(deps)) {}
  ~coordinator() override { coordinator::stop(failed_start_grace); }

  base::result<void> start();
  void report_host(const std::string&) override {}
  void stop(std::chrono::milliseconds grace) override;
  void leave(std::chrono::milliseconds grace) override { stop(grace); }

 private:
  coordinator_ptr make_env();
  net::session_handler open_worker(std::shared_ptr<net::ws_session> session,
                                   const net::connection_info& info);

  coordinator_deps deps_;
  std::shared_ptr<base::worker_pool> pool_;
  std::shared_ptr<lease_table> leases_;
  std::shared_ptr<const std::string> secret_;
  std::shared_ptr<cluster_slot> cluster_ = std::make_shared<cluster_slot>();
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
  env->metrics = metrics_;
  env->leases = leases_;
  env->known_edges = deps_.known_edges;
  env->save_edges = deps_.save_edges;
  env->candidates = config_.coordinator.candidates;
  env->lost_after = std::chrono::seconds(config_.coordinator.lost_after);
  env->default_limit_bytes = std::uint64_t{config_.sandbox.memory_mb} << 20U;
  return env;
}

net::session_handler coordinator::open_worker(std::shared_ptr<net::ws_session> session,
                                              const net::connection_info& info) {
  const auto cluster = cluster_->get();
  if (!cluster || health_->draining()) return turn_away(*session);
  return open_node(*system_, {std::move(session), info.peer, secret_, cluster});
}

base::result<void> coordinator::start() {
  secret_ = std::make_shared<const std::string>(deps_.secret);
  spawn_root(root_args{{}, {}, slot_, give_up_, {}, make_env(), cluster_});
  net::listener_callbacks callbacks{
      .gate = gate_,
      .opened = [this](const auto& session,
                       auto info) { return open_client({}, leases_, session, std::move(info)); },
      .get = [p = pages{health_, metrics_}](const net::http_get& asked) { return p.get(asked); },
      .peer_opened = [this](auto session,
                            const auto& info) { return open_worker(std::move(session), info); }};
  DSEC_CHECK(listen(std::move(callbacks), base::peer_file(config_, config_.peer.ca_file)));
  leases_->open();
  health_->expect_beats(longest_pause);
  health_->set_ready(true);
  base::log::info("ready", {{"port", port()}, {"role", "coordinator"}});
  return {};
}

void coordinator::stop(std::chrono::milliseconds grace) {
  end(grace, shut_down{.leave = true}, [this] {
    pool_->stop();
    base::log::info("stopped");
  });
}

}  // namespace

base::result<std::unique_ptr<node>> start_coordinator(const base::config& config,
                                                      coordinator_deps deps) {
  auto n = std::make_unique<coordinator>(config, std::move(deps));
  DSEC_CHECK(n->start());
  return n;
}

}  // namespace dsec::actors

#include "actors/system.hpp"

#include <algorithm>
#include <caf/actor_system.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "actors/gateway.hpp"
#include "actors/node_memory.hpp"
#include "actors/node_parts.hpp"
#include "actors/orphans.hpp"
#include "actors/recovery.hpp"
#include "actors/root_supervisor.hpp"
#include "actors/runtime.hpp"
#include "actors/terminator.hpp"
#include "base/ids.hpp"
#include "base/log.hpp"
#include "net/listener.hpp"

namespace dsec::actors {
namespace {

constexpr unsigned kill_threads = 8;
class node_impl final : public node {
 public:
  node_impl(const base::config& config, node_deps deps);
  ~node_impl() override { stop(std::chrono::seconds(60)); }

  base::result<void> start();
  [[nodiscard]] std::uint16_t port() const override { return listener_->port(); }
  void keys_revoked(const std::vector<std::string>& ids) override {
    if (const auto gateway = slot_->get()) caf::anon_send(gateway, actors::keys_revoked{ids});
  }
  base::result<void> reload_certificate() override { return listener_->reload_certificate(); }
  void apply(const base::config& config) override {
    worker_->live->take(config);
    listener_->set_max_connections(config.gateway.max_connections);
  }
  void report_host(const std::string& missing) override {
    missing.empty() ? health_->clear("host_lacks") : health_->report("host_lacks", missing);
  }
  void stop(std::chrono::milliseconds grace) override { end(grace, shut_down{}); }
  void leave(std::chrono::milliseconds grace) override { end(grace, shut_down{.leave = true}); }

 private:
  void end(std::chrono::milliseconds grace, shut_down how);
  std::shared_ptr<base::worker_pool> make_pool(const char* name, unsigned threads,
                                               std::size_t bound);
  std::shared_ptr<worker> make_worker(node_deps& deps, std::unique_ptr<record_store> records);
  net::session_handler open(std::shared_ptr<net::ws_session> session, net::connection_info info);
  std::vector<uplink_args> make_uplinks();

  base::config config_;
  node_deps deps_;
  std::shared_ptr<health_board> health_ = std::make_shared<health_board>();
  std::vector<std::shared_ptr<base::worker_pool>> pools_;
  std::shared_ptr<worker> worker_;
  std::shared_ptr<edge_table> table_;
  std::shared_ptr<gateway_slot> slot_ = std::make_shared<gateway_slot>();
  runtime_config runtime_;
  std::unique_ptr<caf::actor_system> system_;
  root_actor root_;
  terminator_actor terminator_;
  std::unique_ptr<net::listener> listener_;
  std::shared_ptr<net::peer_connector> connector_;  // of a worker
};

node_impl::node_impl(const base::config& config, node_deps deps)
    : config_(config), deps_(std::move(deps)) {
  if (!deps_.give_up) deps_.give_up = end_process;
}

std::shared_ptr<base::worker_pool> node_impl::make_pool(const char* name, unsigned threads,
                                                        std::size_t bound) {
  pools_.push_back(std::make_shared<base::worker_pool>(
      base::pool_options{.name = name, .threads = threads, .queue_bound = bound}));
  health_->watch(pools_.back());
  return pools_.back();
}

std::shared_ptr<worker> node_impl::make_worker(node_deps& deps,
                                               std::unique_ptr<record_store> records) {
  auto w = std::make_shared<worker>();
  w->config = config_;
  w->live->take(config_);
  w->backend = deps.backend;
  // Exec and fork do not scale over CPUs, so more starts at once only take longer each; but one
  // that waits for a disk must not hold up all others. Admission bounds the queues: a sandbox has
  // one start and one stop at a time.
  const auto cpus = std::max(2U, std::thread::hardware_concurrency());
  const std::size_t bound = 2 * std::size_t{config_.node.max_sandboxes} + 64;
  w->start_pool = make_pool("start", std::min(cpus, 16U), bound);
  // One whose processes cannot be killed, because a disk does not answer, keeps its thread for as
  // long as a stop may take; the others must not wait for it.
  w->kill_pool = make_pool("kill", kill_threads, bound);
  w->copy_pool = make_pool("copy", 2, 65'536);
  w->background_pool = make_pool("background", 1, 65'536);
  w->writer = std::make_shared<record_writer>(std::move(records), store_reporter(health_));
  w->images = make_catalogue(deps.images);
  w->health = health_;
  w->leases = std::make_shared<lease_table>([] { return std::chrono::steady_clock::now(); });
  w->epoch = base::random_token(60);
  w->wall = [] { return std::chrono::system_clock::now(); };
  w->memory = [] { return read_node_memory(); };
  w->keep_failed = keep_nothing;
  return w;
}

net::session_handler node_impl::open(std::shared_ptr<net::ws_session> session,
                                     net::connection_info info) {
  const auto gateway = slot_->get();
  if (!gateway || health_->draining()) return turn_away(*session);
  const auto& live = *worker_->live;
  connection_setup setup{gateway, config_.node.name, worker_->leases,
                         std::chrono::milliseconds(live.default_deadline_ms.load()),
                         std::chrono::seconds(live.lease_seconds.load())};
  return open_held(*system_, *deps_.gate, std::move(setup), std::move(session), std::move(info));
}

/// A link to each coordinator of a worker.
std::vector<uplink_args> node_impl::make_uplinks() {
  std::vector<uplink_args> out;
  if (!deps_.links) return out;
  connector_ = net::peer_connector::start();
  const auto secret = std::make_shared<const std::string>(deps_.links->secret);
  for (const auto& c : deps_.links->coordinators) {
    out.push_back(
        {worker_, slot_, connector_, c, secret, deps_.links->node_id, deps_.links->program});
  }
  return out;
}

base::result<void> node_impl::start() {
  auto records = make_record_store(std::move(deps_.store));
  DSEC_TRY(auto known, records->load());
  const base::paths paths(config_.state);
  const auto orphans = find_orphans(paths, known);
  worker_ = make_worker(deps_, std::move(records));
  DSEC_TRY(table_, recover_sandboxes(std::move(known), *worker_));
  // What ran in them is ended by now.
  for (const auto& id : orphans) {
    base::log::warn("sandbox_orphaned", {{"sandbox", id}});
    (void)worker_->background_pool->submit([paths, id] { remove_sandbox_files(paths, id); });
  }
  system_ = std::make_unique<caf::actor_system>(runtime_);
  root_ = system_->spawn(root_supervisor,
                         root_args{worker_, table_, slot_, deps_.give_up, make_uplinks()});
  terminator_ = system_->spawn(terminator, root_);
  // The gateway is there once the root answers.
  caf::scoped_actor self{*system_};
  self->request(root_, caf::infinite, get_roots{}).receive([](const roots&) {}, [](caf::error&) {});
  net::listener_callbacks callbacks{
      .gate = deps_.gate, .opened = {}, .get = [health = health_](std::string_view path) {
        return answer_get(*health, path);
      }};
  if (!deps_.links) {
    callbacks.opened = [this](auto session, auto info) {
      return open(std::move(session), std::move(info));
    };
  }
  DSEC_TRY(listener_, net::listener::start(config_.gateway, std::move(callbacks)));
  // Clients of a worker come over its links, which open them.
  if (!deps_.links) worker_->leases->open();
  health_->expect_beats(longest_pause);
  health_->set_ready(true);
  base::log::info("ready", {{"port", listener_->port()}, {"edge", config_.node.name}});
  return {};
}

void node_impl::end(std::chrono::milliseconds grace, shut_down how) {
  // Before anything that holds an instance is let go of.
  if (how.leave) deps_.backend->leave();
  if (!system_) return;
  grace_period watchdog(
      grace, [&] { deps_.give_up("did not stop in " + std::to_string(grace.count()) + " ms"); });
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
  for (const auto& pool : pools_) pool->stop();
  worker_.reset();  // ends the writer once all is written
  table_.reset();
  base::log::info(how.leave ? "left" : "stopped");
}

}  // namespace

base::result<std::unique_ptr<node>> start_node(const base::config& config, node_deps deps) {
  auto n = std::make_unique<node_impl>(config, std::move(deps));
  if (auto ok = n->start(); !ok) {
    // A port that is taken is no reason to end what was taken over.
    n->leave(failed_start_grace);
    return base::fail(std::move(ok).error());
  }
  return n;
}

}  // namespace dsec::actors

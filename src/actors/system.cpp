#include "actors/system.hpp"

#include <algorithm>
#include <thread>
#include <utility>
#include <vector>

#include "actors/node_base.hpp"
#include "actors/node_memory.hpp"
#include "actors/node_parts.hpp"
#include "actors/orphans.hpp"
#include "actors/recovery.hpp"
#include "base/ids.hpp"
#include "base/log.hpp"

namespace dsec::actors {
namespace {

constexpr unsigned kill_threads = 8;

class node_impl final : public node_base {
 public:
  node_impl(const base::config& config, node_deps deps)
      : node_base(config, deps.gate, deps.give_up), deps_(std::move(deps)) {}
  ~node_impl() override { node_impl::stop(failed_start_grace); }

  base::result<void> start();
  void report_host(const std::string& missing) override {
    missing.empty() ? health_->clear("host_lacks") : health_->report("host_lacks", missing);
  }
  void stop(std::chrono::milliseconds grace) override { end_all(grace, shut_down{}); }
  void leave(std::chrono::milliseconds grace) override { end_all(grace, shut_down{.leave = true}); }

 private:
  void end_all(std::chrono::milliseconds grace, shut_down how);
  std::shared_ptr<base::worker_pool> make_pool(const char* name, unsigned threads,
                                               std::size_t bound);
  std::shared_ptr<worker> make_worker(node_deps& deps, std::unique_ptr<record_store> records);
  std::vector<uplink_args> make_uplinks();

  node_deps deps_;
  std::vector<std::shared_ptr<base::worker_pool>> pools_;
  std::shared_ptr<worker> worker_;
  std::shared_ptr<edge_table> table_;
};

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
  w->live = live_;
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
  w->metrics = metrics_;
  w->leases = std::make_shared<lease_table>([] { return std::chrono::steady_clock::now(); });
  w->epoch = base::random_token(60);
  w->wall = [] { return std::chrono::system_clock::now(); };
  w->memory = [] { return read_node_memory(); };
  w->keep_failed = keep_nothing;
  return w;
}

/// A link to each coordinator of a worker.
std::vector<uplink_args> node_impl::make_uplinks() {
  std::vector<uplink_args> out;
  if (!deps_.links) return out;
  const auto secret = std::make_shared<const std::string>(deps_.links->secret);
  std::vector<std::string> names;
  for (const auto& c : deps_.links->coordinators) names.push_back(c.text());
  const auto leases = std::make_shared<link_leases>(worker_->leases, names);
  for (const auto& c : deps_.links->coordinators) {
    out.push_back({worker_, slot_, connector_, c, secret, deps_.links->node_id,
                   deps_.links->program, leases});
  }
  return out;
}

base::result<void> node_impl::start() {
  if (deps_.links) {
    DSEC_TRY(connector_, net::peer_connector::start(config_));
  }
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
  spawn_root(root_args{worker_, table_, slot_, give_up_, make_uplinks()});
  net::listener_callbacks callbacks{
      .gate = gate_,
      .opened = {},
      .get = [p = pages{health_, metrics_, worker_->backend}](const net::http_get& asked) {
        return p.get(asked);
      }};
  if (!deps_.links) {
    callbacks.opened = [this](const auto& session, auto info) {
      return open_client(config_.node.name, worker_->leases, session, std::move(info));
    };
  }
  DSEC_CHECK(listen(std::move(callbacks)));
  // Clients of a worker come over its links, which open them.
  if (!deps_.links) worker_->leases->open();
  health_->expect_beats(longest_pause);
  health_->set_ready(true);
  worker_->events->add({.kind = event_kind::node_started, .detail = config_.node.name});
  base::log::info("ready", {{"port", port()}, {"edge", config_.node.name}});
  return {};
}

void node_impl::end_all(std::chrono::milliseconds grace, shut_down how) {
  // Before anything that holds an instance is let go of.
  if (how.leave) deps_.backend->leave();
  end(grace, how, [&] {
    for (const auto& pool : pools_) pool->stop();
    worker_.reset();  // ends the writer once all is written
    table_.reset();
    base::log::info(how.leave ? "left" : "stopped");
  });
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

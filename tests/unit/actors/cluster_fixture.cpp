#include "cluster_fixture.hpp"

#include <sstream>
#include <stdexcept>
#include <utility>

namespace dsec::test {

using namespace std::chrono_literals;

void pipe_connector::connect(
    const net::peer_address&,
    std::function<net::session_handler(std::shared_ptr<net::ws_session>, net::connection_info)>
        opened,
    std::function<void(base::error)> failed) {
  const auto to = of_.system ? of_.cluster->get() : actors::cluster_actor();
  ++tries;
  if (!to || unplugged) return failed(refusal);
  worker_end = std::make_shared<pipe_end>();
  coordinator_end = std::make_shared<pipe_end>();
  worker_end->other = coordinator_end;
  coordinator_end->other = worker_end;
  coordinator_end->handler = actors::open_node(
      *of_.system,
      {coordinator_end, "127.0.0.1:9", std::make_shared<const std::string>(of_.secret), to});
  worker_end->handler = opened(worker_end, {{}, "127.0.0.1:7070"});
}

cluster_fixture::cluster_fixture(std::vector<std::string> names, fake::script s) {
  start_coordinator();
  for (const auto& name : names) add(name, name, "id-of-" + name, secret, s);
  advance(200ms);
}

cluster_fixture::worker& cluster_fixture::add(const std::string& key, const std::string& edge,
                                              const std::string& node_id,
                                              const std::string& its_secret, fake::script s) {
  auto& w = workers[key];
  w.connector = std::make_shared<pipe_connector>(*this);
  w.secret = std::make_shared<std::string>(its_secret);
  w.node_id = node_id;
  const auto links = [connector = w.connector, known = w.secret, node_id](node_fixture& n) {
    return std::vector<actors::uplink_args>{
        {n.worker,
         n.slot,
         connector,
         {"127.0.0.1", 7070},
         std::make_shared<const std::string>(*known),
         node_id,
         "test",
         std::make_shared<actors::link_leases>(n.worker->leases,
                                               std::vector<std::string>{"127.0.0.1:7070"})}};
  };
  w.node = std::make_unique<node_fixture>(std::move(s), std::vector<actors::sandbox_record>(), edge,
                                          links);
  run();
  return w;
}

cluster_fixture::~cluster_fixture() {
  for (auto& [name, w] : workers) {
    w.connector->unplugged = true;
    if (w.connector->worker_end) w.connector->worker_end->cut();
  }
  run();
  if (system) kill_coordinator();
  workers.clear();
}

void cluster_fixture::start_coordinator() {
  runtime = std::make_unique<actors::runtime_config>();
  runtime->set("scheduler.policy", caf::atom("testing"));
  system = std::make_unique<caf::actor_system>(*runtime);
  leases = std::make_shared<actors::lease_table>(
      [this] { return scheduler().clock().now(); },
      [this](const std::string& principal, const actors::lease& l, bool held) {
        if (const auto c = cluster->get())
          caf::anon_send(c, actors::lease_changed{principal, l, held});
      });
  env = std::make_shared<actors::coordinator_env>();
  env->copy_pool = copy;
  env->health = std::make_shared<actors::health_board>();
  env->metrics = std::make_shared<actors::node_metrics>();
  env->leases = leases;
  std::istringstream lines(edges_file);
  for (std::string line; std::getline(lines, line);) env->known_edges.push_back(line);
  env->save_edges = [this](const std::string& text) -> base::result<void> {
    edges_file = text;
    return {};
  };
  env->default_limit_bytes = 512ULL << 20U;
  root =
      system->spawn(actors::root_supervisor,
                    actors::root_args{{},
                                      {},
                                      slot,
                                      [](const std::string& why) { throw std::logic_error(why); },
                                      {},
                                      env,
                                      cluster});
  run();
  leases->open();
}

void cluster_fixture::kill_coordinator() {
  for (auto* c : std::exchange(clients, {})) c->drop();
  copy->jobs.clear();
  caf::anon_send_exit(root, caf::exit_reason::user_shutdown);
  while (scheduler().run() > 0) {
  }
  for (auto& [name, w] : workers) {
    if (w.connector->worker_end) w.connector->worker_end->cut();
  }
  while (scheduler().run() > 0) {
  }
  root = nullptr;
  slot->set({});
  cluster->set({});
  system.reset();
  env.reset();
  leases.reset();
  runtime.reset();
}

void cluster_fixture::cut(const std::string& name) {
  workers.at(name).connector->worker_end->cut();
  run();
}

actors::connection_setup cluster_fixture::connections() {
  return {slot->get(), {}, leases, 120s, 120s, env->metrics};
}

void cluster_fixture::run() {
  for (bool moved = true; moved;) {
    moved = system && scheduler().run() > 0;
    if (!copy->held) moved = copy->run_one() || moved;
    for (auto& [name, w] : workers) {
      if (w.runs()) moved = w.node->step() || moved;
    }
  }
}

void cluster_fixture::advance(std::chrono::milliseconds total, std::chrono::milliseconds step) {
  for (auto left = total; left > 0ms; left -= std::min(left, step)) {
    const auto now = std::min(left, step);
    if (system) scheduler().advance_time(now);
    for (auto& [name, w] : workers) {
      if (w.runs()) w.node->scheduler().advance_time(now);
    }
    run();
  }
}

std::string cluster_fixture::running_sandbox(client& c, const std::string& key) {
  const auto a = c.call(create(), 0, key);
  if (a.kind != "sandbox" || a.phase != "running")
    throw std::logic_error("create failed: " + a.code + ": " + a.message);
  return a.sandbox_id;
}

}  // namespace dsec::test

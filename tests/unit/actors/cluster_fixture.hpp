// A coordinator and its workers without sockets: each a whole node on virtual time of its own
// (node_fixture.hpp), and links between them that the test can cut. Everything happens on the
// test's thread, in a known order.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/cluster.hpp"
#include "actors/node.hpp"
#include "node_fixture.hpp"

namespace dsec::test {

/// One end of a link; what it sends the other end's handler gets.
class pipe_end final : public net::ws_session {
 public:
  void send(proto::frame f) override {
    if (queued != 0) return held.push_back(std::move(f));
    ++sent;
    if (const auto o = other.lock(); o && o->handler.message && !o->ended) o->handler.message(f);
  }
  void send_then_pack(proto::frame f) override { send(std::move(f)); }
  bool is_text() override { return false; }
  bool queued_at_most(std::size_t level) override { return queued <= level; }
  void grant(std::uint32_t) override {}
  void close(std::string reason) override {
    if (!ended) closed_because = std::move(reason);
    cut();
  }
  void leave(std::string reason) override { close(std::move(reason)); }
  void expel(std::string reason) override { close(std::move(reason)); }
  /// Both ends are told that it is over.
  void cut() {
    if (std::exchange(ended, true)) return;
    if (handler.closed) handler.closed();
    if (const auto o = other.lock()) o->cut();
  }
  /// The socket takes nothing, and then everything.
  void block(std::size_t bytes) { queued = bytes; }
  void unblock() {
    queued = 0;
    for (auto& f : std::exchange(held, {})) send(std::move(f));
    if (handler.room) handler.room();
  }

  std::weak_ptr<pipe_end> other;
  net::session_handler handler;
  std::size_t queued = 0;
  std::size_t sent = 0;
  std::vector<proto::frame> held;
  bool ended = false;
  std::string closed_because;
};

class cluster_fixture;

/// Opens links to the fixture's coordinator.
class pipe_connector final : public net::peer_connector {
 public:
  explicit pipe_connector(cluster_fixture& of) : of_(of) {}
  void connect(
      const net::peer_address& to,
      std::function<net::session_handler(std::shared_ptr<net::ws_session>, net::connection_info)>
          opened,
      std::function<void(base::error)> failed) override;
  base::result<std::function<void()>> read_certificate() override {
    return [] {};
  }
  void stop() override {}

  std::shared_ptr<pipe_end> worker_end, coordinator_end;  // of the last link
  bool unplugged = false;
  base::error refusal{base::errc::unavailable, "connection refused", 0};  // while it is unplugged
  int tries = 0;

 private:
  cluster_fixture& of_;
};

class cluster_fixture : public door {
 public:
  struct worker {
    std::shared_ptr<pipe_connector> connector;
    std::shared_ptr<std::string> secret;
    std::string node_id;
    std::unique_ptr<node_fixture> node;
    bool frozen = false;  // its actors do not run; its end of the link stands

    [[nodiscard]] bool runs() const { return node && node->system && !frozen; }
  };

  explicit cluster_fixture(std::vector<std::string> names, fake::script s = {});
  ~cluster_fixture() override;
  cluster_fixture(const cluster_fixture&) = delete;
  cluster_fixture& operator=(const cluster_fixture&) = delete;

  worker& add(const std::string& key, const std::string& edge, const std::string& node_id,
              const std::string& secret, fake::script s = {});
  /// The coordinator is killed; links are cut, clients hear nothing.
  void kill_coordinator();
  void start_coordinator();
  /// Cuts a worker's link. It opens another when its time has come, unless it is unplugged.
  void cut(const std::string& name);

  caf::actor_system& actor_system() override { return *system; }
  actors::connection_setup connections() override;
  void run() override;
  void advance(std::chrono::milliseconds total,
               std::chrono::milliseconds step = std::chrono::milliseconds(50));
  node_fixture& node(const std::string& name) { return *workers.at(name).node; }
  /// How many sandboxes live on a worker.
  std::size_t live(const std::string& name) { return node(name).backend->live(); }
  /// As /healthz says it.
  std::string health() { return env->health->healthz().json; }
  /// What every worker has available, bytes; told with its next report.
  void set_memory(std::uint64_t available) {
    for (auto& [name, w] : workers) w.node->memory.available = available;
  }
  std::string running_sandbox(client& c, const std::string& key = {});

  std::map<std::string, worker> workers;
  std::shared_ptr<actors::coordinator_env> env;
  std::shared_ptr<actors::lease_table> leases;
  std::string edges_file;  // what a coordinator remembers
  std::string secret = std::string(40, 's');
  std::shared_ptr<manual_pool> copy = std::make_shared<manual_pool>();
  std::shared_ptr<actors::gateway_slot> slot = std::make_shared<actors::gateway_slot>();
  std::shared_ptr<actors::cluster_slot> cluster = std::make_shared<actors::cluster_slot>();
  std::unique_ptr<actors::runtime_config> runtime;
  std::unique_ptr<caf::actor_system> system;
  actors::root_actor root;

 private:
  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system->scheduler());
  }
};

}  // namespace dsec::test

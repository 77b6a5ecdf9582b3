// A whole node without sockets and without threads that matter: gateway, edge, sandboxes and
// connections on CAF's test scheduler (virtual time), pools that the test runs by hand, a store in
// memory, a fake backend and clients that speak the protocol through a fake session. Everything
// happens on the test's thread, in a known order.
#pragma once

#include <capnp/message.h>

#include <atomic>
#include <caf/actor_system.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/send.hpp>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "actors/edge_table.hpp"
#include "actors/gateway.hpp"
#include "actors/root_supervisor.hpp"
#include "actors/runtime.hpp"
#include "actors/worker.hpp"
#include "backends/fake/backend.hpp"
#include "net/listener.hpp"

namespace dsec::test {

/// A pool whose jobs run when the test says so.
class manual_pool final : public base::executor {
 public:
  base::result<void> submit(std::function<void()> job) override {
    if (full) return base::fail(base::errc::capacity, "pool 'test' is full");
    jobs.push_back(std::move(job));
    return {};
  }
  bool run_one() {
    if (jobs.empty()) return false;
    auto job = std::move(jobs.front());
    jobs.pop_front();
    job();
    return true;
  }

  std::deque<std::function<void()>> jobs;
  bool held = false;  // node_fixture::run() leaves it alone
  bool full = false;
};

/// Rows that outlive the node.
class memory_records final : public std::enable_shared_from_this<memory_records> {
 public:
  base::result<std::vector<actors::sandbox_record>> load();
  base::result<void> apply(const std::vector<actors::record_change>& changes);
  std::optional<actors::sandbox_record> find(const std::string& id) const;
  void fail_from_now(bool on);
  /// Nothing is written until it is let go.
  void hold(bool on);
  /// A store for one node over these rows. cut_off() is what the node's kill -9 is for it: what it
  /// had not written is lost.
  std::unique_ptr<actors::record_store> open();
  void cut_off();

 private:
  struct session;
  mutable std::mutex mutex_;
  std::condition_variable released_;
  bool held_ = false;
  std::map<std::string, actors::sandbox_record> rows_;
  bool failing_ = false;
  std::weak_ptr<std::atomic<bool>> current_;  // of the node that writes: whether it is cut off
};

/// Knows debian:12 (base), code:1 (workspace), pytest:8 (toolkit).
class fixed_images final : public actors::image_catalogue {
 public:
  base::result<actors::resolved_images> resolve(const actors::image_refs& refs) override;
  base::result<std::vector<fs::image>> list() override;

  bool none = false;  // there are none
};

/// What a client got, with the parts tests look at.
struct answer {
  std::string kind;  // error, hello, pong, sandbox, sandboxes, command, output, file_data,
                     // file_written, images, commands
  std::string code, message, object;
  bool retryable = false;
  std::string sandbox_id, phase, cause, detail;
  std::vector<std::string> warnings, ids, argv, unreachable, edges;
  std::string command_id, state, out, err;
  int exit_code = -1;
  bool timed_out = false, out_truncated = false, end_of_file = false, ended = false;
  bool detached = false;
  std::uint64_t out_total = 0, offset = 0, size = 0, total = 0;
  std::uint32_t commands_running = 0;
};
answer decode(const proto::frame& f);

class recording_session final : public net::ws_session {
 public:
  void send(proto::frame f) override { sent.push_back(holds ? std::move(f) : written(f)); }
  void send_then_pack(proto::frame f) override {
    send(std::move(f));
    packs = true;
  }
  bool is_text() override { return text; }
  bool queued_at_most(std::size_t level) override { return queued <= level; }
  void grant(std::uint32_t n) override { granted += n; }
  void close(std::string reason) override { closed.push_back(std::move(reason)); }
  void leave(std::string reason) override {
    left.push_back(reason);
    closed.push_back(std::move(reason));
  }
  void expel(std::string reason) override { expelled.push_back(std::move(reason)); }

  /// What it holds goes to the socket.
  void release() {
    holds = false;
    for (auto& f : sent) f = written(f);
  }

  std::vector<proto::frame> sent;
  std::vector<std::string> closed, left, expelled;  // left: of the closed
  std::uint32_t granted = 0;
  bool holds = false;  // nothing of what is sent goes to the socket
  bool packs = false;
  bool text = false;
  std::size_t queued = 0;  // bytes that the client has not read, as the test says

 private:
  /// The same, which nobody holds.
  static proto::frame written(const proto::frame& f) {
    return *proto::frame::from_bytes(f.bytes());
  }
};

class client;

/// Where clients connect: a node, or the coordinator of several.
struct door {
  virtual ~door() = default;
  virtual caf::actor_system& actor_system() = 0;
  virtual actors::connection_setup connections() = 0;
  /// Everything happens that can.
  virtual void run() = 0;

  std::vector<client*> clients;  // that are connected
};

class client {
 public:
  using fill = std::function<void(proto::Request::Builder)>;

  client(door& node, std::string principal,
         const std::function<void(proto::Hello::Builder)>& hello_with = {});
  ~client();
  client(const client&) = delete;
  client& operator=(const client&) = delete;

  /// Sends a request and lets everything happen that can; returns its id.
  std::uint64_t ask(const fill& f, std::uint32_t deadline_ms = 0, const std::string& key = {});
  /// The same, but nothing happens yet.
  std::uint64_t send(const fill& f, std::uint32_t deadline_ms = 0, const std::string& key = {});
  /// The answer to it, if there is one.
  std::optional<answer> got(std::uint64_t id) const;
  /// ask() that must be answered at once.
  answer call(const fill& f, std::uint32_t deadline_ms = 0, const std::string& key = {});
  void raw(proto::frame f);
  void hello(const std::function<void(proto::Hello::Builder)>& more = {});
  void disconnect();
  /// The node it spoke to is gone; it hears nothing of that.
  void drop() { handler_ = {}; }
  /// A new connection, to the node that is there now. Requests that were not answered are lost.
  void reconnect(const std::function<void(proto::Hello::Builder)>& more = {});
  /// The client has read so much that only `queued` bytes are left.
  void read_replies(std::size_t queued);

  std::shared_ptr<recording_session> session = std::make_shared<recording_session>();

 private:
  door& node_;
  std::string principal_;
  net::session_handler handler_;
  std::uint64_t last_id_ = 0;
};

/// The backend's step fails while `broken` is set, which must outlive the fixture.
inline fake::script fails_while(const bool& broken, std::string step, std::string why) {
  return {.run = {},
          .on_step = [&broken, step = std::move(step), why = std::move(why)](
                         std::string_view s, const std::string&) -> base::result<void> {
            if (broken && s == step) return base::fail(base::errc::io, why);
            return {};
          }};
}

class node_fixture : public door {
 public:
  /// The links of a worker to its coordinators, made anew at each start.
  using links = std::function<std::vector<actors::uplink_args>(node_fixture&)>;

  node_fixture() : node_fixture(fake::script{}) {}
  explicit node_fixture(fake::script s, std::vector<actors::sandbox_record> records = {},
                        std::string edge = "e0", links l = {});
  ~node_fixture() override;
  node_fixture(const node_fixture&) = delete;
  node_fixture& operator=(const node_fixture&) = delete;

  caf::actor_system& actor_system() override { return *system; }
  actors::connection_setup connections() override;

  /// kill -9 of the node: what it had not written is lost, what it had under way has no effect.
  void kill9();
  /// The node leaves in order and its sandboxes where they are.
  void leave();
  /// Another one over the same store and the same host. Throws when it does not start.
  void start_again();
  base::result<void> try_start_again();
  void restart() {
    kill9();
    start_again();
  }
  /// What is due to be written is written.
  void write_records();

  /// Runs actors and the pools that are not held until nothing moves.
  void run() override;
  /// One turn of that; false when nothing moved.
  bool step();
  /// Lets virtual time pass in steps, so that what falls due happens in order.
  void advance(std::chrono::milliseconds total,
               std::chrono::milliseconds step = std::chrono::milliseconds(100));

  /// Creates a sandbox for `c` and returns its id; it runs.
  std::string running_sandbox(client& c, const client::fill& more = {});
  /// The actor that answers for a sandbox now.
  actors::sandbox_actor actor_of(const std::string& id, const std::string& principal = "alice");
  std::optional<actors::sandbox_record> record(const std::string& id) { return records->find(id); }

  base::config config;
  std::shared_ptr<manual_pool> start = std::make_shared<manual_pool>();
  std::shared_ptr<manual_pool> kill = std::make_shared<manual_pool>();
  std::shared_ptr<fixed_images> images = std::make_shared<fixed_images>();
  std::shared_ptr<manual_pool> copy = std::make_shared<manual_pool>();
  std::shared_ptr<manual_pool> background = std::make_shared<manual_pool>();
  std::shared_ptr<memory_records> records = std::make_shared<memory_records>();
  std::shared_ptr<fake::backend> backend;
  std::shared_ptr<actors::worker> worker;
  actors::memory_reading memory{8ULL << 30U, 8ULL << 30U};
  std::vector<actors::sandbox_record> kept;  // what worker::keep_failed was shown
  std::function<void()> on_keep = [] {};
  std::shared_ptr<actors::edge_table> table;
  std::shared_ptr<actors::gateway_slot> slot = std::make_shared<actors::gateway_slot>();
  std::vector<std::string> given_up;
  std::unique_ptr<actors::runtime_config> runtime;
  std::unique_ptr<caf::actor_system> system;
  actors::root_actor root;

  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system->scheduler());
  }

 private:
  void end_actors();

  links links_;
  std::chrono::system_clock::time_point wall_{std::chrono::seconds(1'700'000'000)};
  unsigned epochs_ = 0;
};

/// Fills in a create of debian:12.
client::fill create(std::function<void(proto::CreateSandbox::Builder)> more = {});
client::fill exec(const std::string& sandbox_id, const std::string& command_id,
                  std::function<void(proto::Exec::Builder)> more = {});
client::fill get(const std::string& sandbox_id);
client::fill stop(const std::string& sandbox_id);
client::fill get_command(const std::string& sandbox_id, const std::string& command_id,
                         std::uint32_t wait_ms = 0);
client::fill kill_command(const std::string& sandbox_id, const std::string& command_id);
client::fill list();
client::fill list_commands(const std::string& sandbox_id);
client::fill set_detached(const std::string& sandbox_id, bool detached);
client::fill write_file(const std::string& sandbox_id, const std::string& path,
                        const std::string& data, const std::string& operation = {});
client::fill read_file(const std::string& sandbox_id, const std::string& path);
client::fill read_output(const std::string& sandbox_id, const std::string& command_id);

/// A run script under which commands whose first argument is "hold" run until they are ended.
fake::script holding();

}  // namespace dsec::test

// The same actors on real threads: CAF's own scheduler, worker pools, SQLite. What virtual time
// cannot show: races between pools, backend threads and actors. Run under TSan and ASan too.
#include <arpa/inet.h>
#include <capnp/message.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <caf/actor_system.hpp>
#include <caf/scoped_actor.hpp>
#include <caf/send.hpp>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

#include "actors/system.hpp"
#include "actors/terminator.hpp"
#include "base/ids.hpp"
#include "node_fixture.hpp"

using namespace dsec::test;
using namespace std::chrono_literals;
namespace actors = dsec::actors;
namespace base = dsec::base;
namespace fake = dsec::fake;
namespace proto = dsec::proto;

namespace {

struct temp_state {
  std::filesystem::path path =
      std::filesystem::temp_directory_path() / ("dsec-" + base::random_token(60));
  temp_state() { std::filesystem::create_directories(path); }
  ~temp_state() { std::filesystem::remove_all(path); }
  temp_state(const temp_state&) = delete;
  temp_state& operator=(const temp_state&) = delete;

  [[nodiscard]] std::unique_ptr<base::store> store() const {
    return *base::open_sqlite(path / "worker.db", base::durability::process,
                              actors::worker_migrations());
  }
};

/// A session whose answers another thread waits for.
class waiting_session final : public dsec::net::ws_session {
 public:
  void send(proto::frame f) override {
    const std::scoped_lock lock(mutex_);
    sent_.push_back(std::move(f));
    arrived_.notify_all();
  }
  void send_then_pack(proto::frame f) override { send(std::move(f)); }
  bool is_text() override { return false; }
  bool queued_at_most(std::size_t) override { return true; }
  void grant(std::uint32_t) override {}
  void close(std::string) override {}
  void expel(std::string) override {}
  void leave(std::string) override {}

  answer next() {
    std::unique_lock lock(mutex_);
    if (!arrived_.wait_for(lock, 30s, [this] { return !sent_.empty(); }))
      throw std::runtime_error("no answer");
    const auto f = std::move(sent_.front());
    sent_.erase(sent_.begin());
    return decode(f);
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::vector<proto::frame> sent_;
};

/// A sandbox that has failed is taken down in the background; `stop` of it does not wait for that.
bool none_live_soon(const fake::host& h) {
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  while (h.live() != 0 && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  return h.live() == 0;
}

class threaded_node {
 public:
  explicit threaded_node(fake::script s) {
    worker->backend = backend = std::make_shared<fake::backend>(std::move(s));
    worker->start_pool = pool("start", 2);
    worker->kill_pool = pool("kill", 1);
    worker->copy_pool = pool("copy", 2);
    worker->background_pool = pool("background", 1);
    worker->health = std::make_shared<actors::health_board>();
    worker->writer = std::make_shared<actors::record_writer>(
        actors::make_record_store(state.store()), [](const base::result<void>&) {});
    worker->images = std::make_shared<fixed_images>();
    worker->wall = [] { return std::chrono::system_clock::now(); };
    worker->leases =
        std::make_shared<actors::lease_table>([] { return std::chrono::steady_clock::now(); });
    worker->epoch = "test";
    worker->memory = []() -> base::result<actors::memory_reading> {
      return actors::memory_reading{64ULL << 30U, 64ULL << 30U};
    };
    system = std::make_unique<caf::actor_system>(runtime);
    table = std::make_shared<actors::edge_table>();
    root = system->spawn(actors::root_supervisor,
                         actors::root_args{worker, table, slot, [](const std::string&) {}});
    caf::scoped_actor self{*system};
    self->request(root, caf::infinite, actors::get_roots{})
        .receive([](const actors::roots&) {}, [](caf::error&) {});
    worker->leases->open();
  }
  ~threaded_node() {
    {
      caf::scoped_actor self{*system};
      const auto terminator = system->spawn(actors::terminator, root);
      self->request(terminator, caf::infinite, actors::shut_down{})
          .receive([](actors::shut_down_done) {}, [](caf::error&) {});
      caf::anon_send_exit(terminator, caf::exit_reason::user_shutdown);
      caf::anon_send_exit(root, caf::exit_reason::user_shutdown);
    }
    root = nullptr;
    slot->set({});
    system.reset();
    for (const auto& p : pools) p->stop();
  }

  std::shared_ptr<base::worker_pool> pool(const char* name, unsigned threads) {
    pools.push_back(std::make_shared<base::worker_pool>(
        base::pool_options{.name = name, .threads = threads, .queue_bound = 10'000}));
    return pools.back();
  }

  temp_state state;
  std::vector<std::shared_ptr<base::worker_pool>> pools;
  std::shared_ptr<fake::backend> backend;
  std::shared_ptr<actors::worker> worker = std::make_shared<actors::worker>();
  std::shared_ptr<actors::edge_table> table;
  std::shared_ptr<actors::gateway_slot> slot = std::make_shared<actors::gateway_slot>();
  actors::runtime_config runtime;
  std::unique_ptr<caf::actor_system> system;
  actors::root_actor root;
};

class blocking_client {
 public:
  explicit blocking_client(threaded_node& node)
      : handler_(actors::open_connection(
            *node.system,
            {node.slot->get(), "e0", node.worker->leases, 120s, 120s, node.worker->metrics},
            session_, {"alice", "x"})) {
    call([](proto::Request::Builder r) { r.getBody().initHello().setProtocolVersion(1); });
  }
  ~blocking_client() { handler_.closed(); }
  blocking_client(const blocking_client&) = delete;
  blocking_client& operator=(const blocking_client&) = delete;

  answer call(const client::fill& f) {
    capnp::MallocMessageBuilder message;
    auto request = message.initRoot<proto::Request>();
    request.setId(++id_);
    f(request);
    handler_.message(proto::frame::from_builder(message));
    return session_->next();
  }

 private:
  std::shared_ptr<waiting_session> session_ = std::make_shared<waiting_session>();
  dsec::net::session_handler handler_;
  std::uint64_t id_ = 0;
};

/// Status of a GET, without a library.
int http_status(std::uint16_t port, const std::string& path) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int status = 0;
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0) {
    const auto request =
        "GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port) + "\r\n\r\n";
    static_cast<void>(::send(fd, request.data(), request.size(), MSG_NOSIGNAL));
    char head[13] = {};
    if (::recv(fd, head, 12, MSG_WAITALL) == 12) status = std::atoi(head + 9);
  }
  ::close(fd);
  return status;
}

}  // namespace

TEST_CASE("many clients create, run and stop at once, and nothing is left") {
  std::atomic<unsigned> n{0};
  threaded_node node({.run =
                          [&](const dsec::backends::exec_spec&) {
                            fake::fate f;
                            f.out = "out";
                            f.after = std::chrono::milliseconds(n++ % 3);
                            return f;
                          },
                      .on_step = {}});
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      blocking_client c(node);
      for (int i = 0; i < 10; ++i) {
        const auto created = c.call(create());
        if (created.phase != "running") ++wrong;
        for (int k = 0; k < 5; ++k) {
          const auto ran = c.call(exec(created.sandbox_id, "c" + std::to_string(k)));
          if (ran.state != "ended" || ran.out != "out") ++wrong;
        }
        if (c.call(stop(created.sandbox_id)).phase != "stopped") ++wrong;
      }
    });
  }
  for (auto& t : threads) t.join();
  CHECK(wrong == 0);
  CHECK(node.backend->live() == 0);
  CHECK(node.backend->started().size() == 80);
}

TEST_CASE("sandboxes that die while they are used always answer") {
  threaded_node node(holding());
  std::atomic<int> odd{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      blocking_client c(node);
      for (int i = 0; i < 10; ++i) {
        const auto id = c.call(create()).sandbox_id;
        std::thread killer([&] { node.backend->fail(id, base::cause::oom, "killed by the test"); });
        const auto a = c.call(exec(id, "c1", [](auto e) { e.initArgv(1).set(0, "hold"); }));
        // It was there in time and was ended, or came too late.
        if (a.exit_code != 137 && a.code != "sandbox_failed" && a.code != "unavailable") ++odd;
        killer.join();
        c.call(stop(id));
      }
    });
  }
  for (auto& t : threads) t.join();
  CHECK(odd == 0);
  CHECK(none_live_soon(*node.backend->host()));
}

TEST_CASE("a node starts, answers over HTTP, and stops") {
  const temp_state state;
  base::config config;
  config.state = state.path;
  config.gateway.port = 0;
  const auto start = [&] {
    return actors::start_node(config, {.backend = std::make_shared<fake::backend>(),
                                       .images = dsec::fs::image_store(base::paths(state.path)),
                                       .store = state.store(),
                                       .gate = std::make_shared<dsec::auth::gate>(),
                                       .give_up = [](const std::string& why) { FAIL(why); }});
  };
  auto node = start();
  REQUIRE(node);
  CHECK(http_status((*node)->port(), "/healthz") == 200);
  CHECK(http_status((*node)->port(), "/readyz") == 200);
  CHECK(http_status((*node)->port(), "/nothing") == 404);

  config.gateway.port = (*node)->port();
  const auto second = start();
  REQUIRE_FALSE(second);
  CHECK(second.error().code == base::errc::io);

  (*node)->stop(30s);
  CHECK(http_status(config.gateway.port, "/healthz") == 0);
}

namespace {

/// One sandbox that runs on a fake host and that the store of `state` knows.
std::shared_ptr<fake::host> host_with_sandbox(const temp_state& state, fake::script s = holding(),
                                              actors::lease lease = {}) {
  auto host = std::make_shared<fake::host>(std::move(s));
  fake::backend before(host);
  actors::sandbox_record r;
  r.id = "e0-aaaaaaaaaaaaaaaa";
  r.owner = "root";
  r.phase = base::phase::running;
  r.lease = std::move(lease);
  const auto started = before.start(actors::start_spec_of(r), {{}, {}, {}, {}});
  REQUIRE(started);
  before.leave();
  REQUIRE(actors::make_record_store(state.store())
              ->apply({std::make_shared<const actors::sandbox_record>(r)}));
  return host;
}

}  // namespace

TEST_CASE("a node that leaves, or cannot start, leaves sandboxes to the next; stopping ends them") {
  const temp_state state;
  base::config config;
  config.state = state.path;
  config.gateway.port = 0;
  const auto host = host_with_sandbox(state);
  const auto start = [&] {
    return actors::start_node(config, {.backend = std::make_shared<fake::backend>(host),
                                       .images = dsec::fs::image_store(base::paths(state.path)),
                                       .store = state.store(),
                                       .gate = std::make_shared<dsec::auth::gate>(),
                                       .give_up = [](const std::string& why) { FAIL(why); }});
  };
  REQUIRE(host->live() == 1);
  auto node = start();
  REQUIRE(node);
  (*node)->leave(30s);
  CHECK(host->live() == 1);

  const int taken = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(::bind(taken, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
  REQUIRE(::listen(taken, 1) == 0);
  REQUIRE(::getsockname(taken, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  config.gateway.port = ntohs(address.sin_port);
  CHECK_FALSE(start());
  ::close(taken);
  CHECK(host->live() == 1);

  config.gateway.port = 0;
  auto last = start();
  REQUIRE(last);
  (*last)->stop(30s);
  CHECK(host->live() == 0);
}

TEST_CASE("a take-over that takes longer than a lease costs no client its sandboxes") {
  const temp_state state;
  base::config config;
  config.state = state.path;
  config.gateway.port = 0;
  const auto lease = 1s;
  std::chrono::steady_clock::time_point taken_over;
  const auto host = host_with_sandbox(
      state,
      {.run = {},
       .on_step = [&](std::string_view step, const std::string&) -> base::result<void> {
         if (step != "end_unrecovered") return {};
         std::this_thread::sleep_for(lease + 200ms);  // nothing to wait for: the time is the case
         taken_over = std::chrono::steady_clock::now();
         return {};
       }},
      {"l1", 1000});
  auto node = actors::start_node(config, {.backend = std::make_shared<fake::backend>(host),
                                          .images = dsec::fs::image_store(base::paths(state.path)),
                                          .store = state.store(),
                                          .gate = std::make_shared<dsec::auth::gate>(),
                                          .give_up = [](const std::string& why) { FAIL(why); }});
  REQUIRE(node);
  CHECK(none_live_soon(*host));
  CHECK(std::chrono::steady_clock::now() - taken_over >= lease);
  (*node)->stop(30s);
}

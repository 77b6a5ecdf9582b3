// The accepting side and the life of the I/O threads. Sessions run on strands over the threads
// started here; start() and stop() are called by whoever owns the listener, never on those threads.
#include "net/listener.hpp"

#include <fcntl.h>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "base/log.hpp"
#include "net/tls.hpp"
#include "net/wire.hpp"

namespace dsec::net {

using namespace std::chrono_literals;

std::optional<hub::admission> hub::enter() {
  const std::lock_guard lock(mutex_);
  if (closed_ || clients() >= max_connections_ + waiting_room) return std::nullopt;
  const admission admitted{next_++, clients() >= max_connections_};
  peers_.emplace(admitted.who, entry{});
  return admitted;
}

bool hub::claim(id who, const std::string& key_id) {
  const std::lock_guard lock(mutex_);
  auto& n = by_key_[key_id];
  if (n >= (max_connections_ + 1) / 2) return false;
  ++n;
  peers_.at(who).key_id = key_id;
  return true;
}

bool hub::become_worker(id who) {
  std::shared_ptr<peer> displaced;
  const std::lock_guard lock(mutex_);
  if (workers_ >= max_workers) return false;
  peers_.at(who).worker = true;
  ++workers_;
  unproven_.push_back(who);
  if (unproven_.size() > max_unproven) {
    displaced = peers_.at(unproven_.front()).reached.lock();
    unproven_.pop_front();
    if (displaced) displaced->abort();
  }
  return true;
}

void hub::prove(id who) {
  const std::lock_guard lock(mutex_);
  std::erase(unproven_, who);
}

void hub::attach(id who, std::weak_ptr<peer> p) {
  const std::lock_guard lock(mutex_);
  if (closed_) {
    if (auto late = p.lock()) late->wind_down();
  }
  peers_.at(who).reached = std::move(p);
}

void hub::leave(id who) {
  const std::lock_guard lock(mutex_);
  const auto gone = peers_.extract(who).mapped();
  if (gone.worker) {
    --workers_;
    std::erase(unproven_, who);
  }
  if (gone.key_id && --by_key_.at(*gone.key_id) == 0) by_key_.erase(*gone.key_id);
  if (peers_.empty()) emptied_.notify_all();
}

std::vector<std::shared_ptr<peer>> hub::present() {
  std::vector<std::shared_ptr<peer>> out;
  for (const auto& [who, e] : peers_) {
    if (auto p = e.reached.lock()) out.push_back(std::move(p));
  }
  return out;
}

void hub::set_certificate(std::shared_ptr<asio::ssl::context> c) {
  const std::lock_guard lock(mutex_);
  certificate_ = std::move(c);
}

std::shared_ptr<asio::ssl::context> hub::certificate() {
  const std::lock_guard lock(mutex_);
  return certificate_;
}

void hub::set_max_connections(std::size_t n) {
  const std::lock_guard lock(mutex_);
  max_connections_ = n;
}

void hub::close_door() {
  std::vector<std::shared_ptr<peer>> all;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    all = present();
  }
  for (const auto& p : all) p->wind_down();
}

void hub::abort_all() {
  std::vector<std::shared_ptr<peer>> all;
  {
    const std::lock_guard lock(mutex_);
    all = present();
  }
  for (const auto& p : all) p->abort();
}

bool hub::wait_empty(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  return emptied_.wait_for(lock, patience, [this] { return peers_.empty(); });
}

namespace {

using base::errc;
using base::error;
using base::fail;
using boost::system::error_code;

/// A second thread takes over a connection's next handler whenever it is idle, which costs a
/// wake-up each; it is worth that only where there are CPUs to spare.
std::size_t io_threads() {
  return std::thread::hardware_concurrency() > 4 ? 2 : 1;
}

class tcp_listener final : public listener {
 public:
  tcp_listener(const base::gateway_config& config, std::shared_ptr<hub> h)
      : config_(config),
        hub_(std::move(h)),
        strand_(hub_->context.get_executor()),
        acceptor_(strand_),
        pause_(strand_) {}
  ~tcp_listener() override { stop(); }

  base::result<void> open() {
    DSEC_TRY(const auto take_certificate, load_certificate());
    take_certificate();
    error_code problem;
    const auto address = asio::ip::make_address(config_.bind, problem);
    if (problem) {
      return fail(errc::invalid_argument, "gateway.bind '" + config_.bind +
                                              "' is not an IP address; use one like 127.0.0.1");
    }
    const tcp::endpoint where(address, config_.port);
    acceptor_.open(where.protocol(), problem);
    // Without this a restart would wait for the last run's connections in TIME_WAIT; a listening
    // socket of somebody else still keeps us out (socket(7)).
    if (!problem) acceptor_.set_option(asio::socket_base::reuse_address(true), problem);
    if (!problem) acceptor_.bind(where, problem);
    if (!problem) acceptor_.listen(asio::socket_base::max_listen_connections, problem);
    if (problem) {
      return fail(error{errc::io,
                        "cannot listen on " + config_.bind + ":" + std::to_string(config_.port) +
                            "; choose another gateway.port, or stop what uses it: `ss -ltnp sport "
                            "= :" +
                            std::to_string(config_.port) + "` names it",
                        problem.value()});
    }
    close_on_exec(acceptor_);
    hub_->port = acceptor_.local_endpoint().port();
    return {};
  }

  void run() {
    accept_next();
    for (auto i = io_threads(); i > 0; --i) threads_.emplace_back([h = hub_] { h->context.run(); });
  }

  [[nodiscard]] std::uint16_t port() const override { return hub_->port; }

  base::result<std::function<void()>> load_certificate() override {
    DSEC_TRY(auto certificate, load_tls(config_, hub_->peer_ca));
    return [h = hub_, certificate = std::move(certificate)] { h->set_certificate(certificate); };
  }

  void set_max_connections(std::uint32_t n) override { hub_->set_max_connections(n); }

  void stop() override {
    const std::lock_guard lock(stopping_);
    if (threads_.empty()) return;
    asio::post(strand_, [this] {
      error_code ignored;
      acceptor_.close(ignored);
      pause_.cancel();
    });
    hub_->close_door();
    if (!hub_->wait_empty(good_bye)) hub_->abort_all();
    // Every operation of an aborted connection ends at once, so the context runs out of work.
    for (auto& t : threads_) t.join();
    threads_.clear();
    hub_->coders.join();
  }

 private:
  static constexpr auto good_bye = 1s;
  static constexpr auto accept_pause = 100ms;

  /// Boost.Asio opens sockets without O_CLOEXEC: a process that we start would keep them.
  template <class Socket>
  static void close_on_exec(Socket& s) {
    ::fcntl(s.native_handle(), F_SETFD, FD_CLOEXEC);
  }

  void accept_next() {
    acceptor_.async_accept(executor(hub_->context.get_executor()),
                           [this](error_code problem, socket s) {
                             if (problem == asio::error::operation_aborted || !acceptor_.is_open())
                               return;
                             if (problem) return wait_out(problem);
                             close_on_exec(s);
                             admit(std::move(s));
                             accept_next();
                           });
  }

  // Out of descriptors or memory: the queue of the kernel keeps who comes meanwhile.
  void wait_out(error_code problem) {
    base::log::warn("accept_failed", {{"error", problem.message()}});
    pause_.expires_after(accept_pause);
    pause_.async_wait([this](error_code cancelled) {
      if (!cancelled) accept_next();
    });
  }

  void admit(socket s) {
    if (const auto admitted = hub_->enter())
      serve_http(hub_, wire(std::move(s), hub_->certificate()), *admitted);
  }

  const base::gateway_config config_;
  std::shared_ptr<hub> hub_;
  executor strand_;  // of the two below
  asio::basic_socket_acceptor<tcp, executor> acceptor_;
  timer pause_;
  std::vector<std::thread> threads_;
  std::mutex stopping_;
};

}  // namespace

base::result<std::unique_ptr<listener>> listener::start(const base::gateway_config& config,
                                                        listener_callbacks callbacks,
                                                        const heartbeat& beat,
                                                        const std::filesystem::path& peer_ca) {
  auto out = std::make_unique<tcp_listener>(
      config, std::make_shared<hub>(config, std::move(callbacks), beat, peer_ca));
  DSEC_CHECK(out->open());
  out->run();
  return out;
}

}  // namespace dsec::net

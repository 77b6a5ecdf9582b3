#include "net/peer_connector.hpp"

#include <fcntl.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <charconv>
#include <thread>
#include <utility>

#include "net/ws_session.hpp"

namespace dsec::net {
namespace {

using base::errc;
using base::fail;
using boost::system::error_code;
using namespace std::chrono_literals;

constexpr auto connect_patience = 3s;

asio::ip::address address_of(const std::string& host) {
  error_code problem;
  return asio::ip::make_address(host == "localhost" ? "127.0.0.1" : host, problem);
}

/// One try: a socket and a clock, whichever is first.
class attempt final : public peer, public std::enable_shared_from_this<attempt> {
 public:
  attempt(std::shared_ptr<hub> h, hub::id place, peer_address to, session_opened opened,
          std::function<void(base::error)> failed)
      : hub_(std::move(h)),
        place_(hub_, place),
        to_(std::move(to)),
        opened_(std::move(opened)),
        failed_(std::move(failed)),
        socket_(executor(hub_->context.get_executor())),
        timer_(socket_.get_executor()) {}

  void start() {
    place_.attach(weak_from_this());
    timer_.expires_after(connect_patience);
    timer_.async_wait([self = shared_from_this()](error_code cancelled) {
      if (!cancelled) self->give_up();
    });
    socket_.async_connect(
        tcp::endpoint(address_of(to_.host), to_.port),
        [self = shared_from_this()](error_code problem) { self->connected(problem); });
  }

  [[nodiscard]] executor where() { return socket_.get_executor(); }
  void wind_down() override { abort(); }
  void abort() override {
    asio::post(socket_.get_executor(), [self = shared_from_this()] { self->give_up(); });
  }

 private:
  void give_up() {
    error_code ignored;
    if (!done_) socket_.close(ignored);
  }

  void connected(error_code problem) {
    done_ = true;
    timer_.cancel();
    if (problem) {
      const bool late = problem == asio::error::operation_aborted;
      return failed_({errc::unavailable,
                      "cannot connect to coordinator " + to_.text() + ": " +
                          (late ? "no answer in time" : problem.message()),
                      0});
    }
    // Boost.Asio opens sockets without O_CLOEXEC: a process that we start would keep it.
    ::fcntl(socket_.native_handle(), F_SETFD, FD_CLOEXEC);
    socket_.set_option(tcp::no_delay(true), problem);
    open_websocket(hub_, wire(std::move(socket_), nullptr), std::move(place_), to_.text(),
                   "/v1/peer", {{}, to_.text(), {}}, std::move(opened_), std::move(failed_),
                   peer_traffic);
  }

  std::shared_ptr<hub> hub_;
  hub_place place_;
  peer_address to_;
  session_opened opened_;
  std::function<void(base::error)> failed_;
  socket socket_;
  timer timer_;
  bool done_ = false;
};

class connector final : public peer_connector {
 public:
  connector()
      : hub_(std::make_shared<hub>(base::gateway_config{}, listener_callbacks{}, heartbeat{})),
        busy_(hub_->context.get_executor()),
        thread_([h = hub_] { h->context.run(); }) {}
  ~connector() override { connector::stop(); }
  connector(const connector&) = delete;
  connector& operator=(const connector&) = delete;

  void connect(const peer_address& to, session_opened opened,
               std::function<void(base::error)> failed) override {
    const auto admitted = hub_->enter();
    if (!admitted) return failed({errc::cancelled, "dsecd is stopping", 0});
    auto one =
        std::make_shared<attempt>(hub_, admitted->who, to, std::move(opened), std::move(failed));
    asio::post(one->where(), [one] { one->start(); });
  }

  void stop() override {
    if (!thread_.joinable()) return;
    hub_->close_door();
    if (!hub_->wait_empty(good_bye)) hub_->abort_all();
    busy_.reset();
    thread_.join();
  }

 private:
  static constexpr auto good_bye = 1s;

  std::shared_ptr<hub> hub_;
  asio::executor_work_guard<asio::io_context::executor_type> busy_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<peer_connector> peer_connector::start() {
  return std::make_unique<connector>();
}

bool peer_address::is_loopback() const {
  return address_of(host).is_loopback();
}

std::string peer_address::text() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

base::result<peer_address> parse_peer_address(std::string_view text) {
  const auto bad = [&] {
    return fail(errc::invalid_argument, "coordinator address '" + std::string(text) +
                                            "' is not ADDRESS:PORT, such as "
                                            "127.0.0.1:7070 or [::1]:7070");
  };
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad();
  auto host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return bad();
  }
  peer_address out{std::string(host), 0};
  const auto* end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data() + colon + 1, end, out.port);
  error_code unknown;
  asio::ip::make_address(out.host == "localhost" ? "127.0.0.1" : out.host, unknown);
  if (problem != std::errc{} || stop != end || out.port == 0 || unknown) return bad();
  if (!out.is_loopback()) {
    return fail(errc::unsupported,
                "coordinator address '" + std::string(text) +
                    "' is not on loopback: the peer link has no TLS yet; use a tunnel that ends on "
                    "127.0.0.1");
  }
  return out;
}

}  // namespace dsec::net

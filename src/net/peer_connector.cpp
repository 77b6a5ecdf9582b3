#include "net/peer_connector.hpp"

#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/sslerr.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/ssl/error.hpp>
#include <charconv>
#include <thread>
#include <utility>

#include "net/tls.hpp"
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

/// For messages.
struct own_files {
  std::string authorities, certificate;
};

/// One try: a socket and a clock, whichever is first.
class attempt final : public peer, public std::enable_shared_from_this<attempt> {
 public:
  attempt(std::shared_ptr<hub> h, hub::id place, peer_address to, own_files files,
          session_opened opened, std::function<void(base::error)> failed)
      : hub_(std::move(h)),
        place_(hub_, place),
        to_(std::move(to)),
        files_(std::move(files)),
        opened_(std::move(opened)),
        failed_(std::move(failed)),
        strand_(hub_->context.get_executor()),
        wire_(socket(strand_), hub_->certificate()),
        timer_(strand_) {}

  void start() {
    place_.attach(weak_from_this());
    timer_.expires_after(connect_patience);
    timer_.async_wait([self = shared_from_this()](error_code cancelled) {
      if (!cancelled) self->give_up();
    });
    wire_.tcp_socket().async_connect(
        tcp::endpoint(address_of(to_.host), to_.port),
        [self = shared_from_this()](error_code problem) { self->connected(problem); });
  }

  [[nodiscard]] executor where() const { return strand_; }
  void wind_down() override { abort(); }
  void abort() override {
    asio::post(strand_, [self = shared_from_this()] { self->give_up(); });
  }

 private:
  void give_up() {
    if (done_) return;
    late_ = true;
    wire_.close();
  }

  void connected(error_code problem) {
    if (late_) problem = asio::error::operation_aborted;
    if (problem) return fail_with(errc::unavailable, "cannot connect to", said(problem));
    // Boost.Asio opens sockets without O_CLOEXEC: a process that we start would keep it.
    ::fcntl(wire_.tcp_socket().native_handle(), F_SETFD, FD_CLOEXEC);
    wire_.tcp_socket().set_option(tcp::no_delay(true), problem);
    if (!wire_.expect(to_.host))
      return fail_with(errc::internal, "no certificate can be for", "OpenSSL refuses its address");
    wire_.async_handshake(
        boost::beast::role_type::client,
        [self = shared_from_this()](error_code failure) { self->shook_hands(failure); });
  }

  void shook_hands(error_code problem) {
    if (late_) problem = asio::error::operation_aborted;
    if (problem) return no_tls(problem);
    done_ = true;
    timer_.cancel();
    open_websocket(hub_, std::move(wire_), std::move(place_), to_.text(), "/v1/peer",
                   {{}, to_.text(), {}}, std::move(opened_), with_own_certificate(), peer_traffic);
  }

  void no_tls(error_code problem) {
    const bool distrusted = problem.category() == asio::error::get_ssl_category() &&
                            ERR_GET_REASON(static_cast<unsigned long>(problem.value())) ==
                                SSL_R_CERTIFICATE_VERIFY_FAILED;
    if (!distrusted) {
      return fail_with(errc::unavailable, "no TLS with",
                       said(problem) + "; with peer.ca_file here it needs gateway.tls_cert there");
    }
    fail_with(errc::unauthenticated, "no trust in the certificate of",
              wire_.distrust() + "; its gateway.tls_cert must be for " + to_.host +
                  ", in its time, and signed by what peer.ca_file '" + files_.authorities +
                  "' holds");
  }

  static std::string said(error_code problem) {
    return problem == asio::error::operation_aborted ? "no answer in time" : problem.message();
  }

  void fail_with(errc code, const std::string& what, const std::string& why) {
    done_ = true;
    timer_.cancel();
    failed_({code, what + " coordinator " + to_.text() + ": " + why, 0});
  }

  /// Who refuses the certificate does not know which file it is of.
  std::function<void(base::error)> with_own_certificate() {
    return [failed = std::move(failed_), file = std::move(files_.certificate)](base::error e) {
      if (e.code == errc::unauthenticated && !file.empty())
        e.message += "; peer.cert_file is '" + file + "' here";
      failed(std::move(e));
    };
  }

  std::shared_ptr<hub> hub_;
  hub_place place_;
  peer_address to_;
  own_files files_;
  session_opened opened_;
  std::function<void(base::error)> failed_;
  const executor strand_;
  wire wire_;
  timer timer_;
  bool done_ = false;
  bool late_ = false;
};

class connector final : public peer_connector {
 public:
  explicit connector(const base::config& config)
      : config_(config),
        hub_(std::make_shared<hub>(base::gateway_config{}, listener_callbacks{}, heartbeat{})),
        busy_(hub_->context.get_executor()),
        thread_([h = hub_] { h->context.run(); }) {}
  ~connector() override { connector::stop(); }
  connector(const connector&) = delete;
  connector& operator=(const connector&) = delete;

  base::result<std::function<void()>> read_certificate() override {
    DSEC_TRY(auto fresh, load_link_tls(config_));
    return [h = hub_, fresh = std::move(fresh)] { h->set_certificate(fresh); };
  }

  void connect(const peer_address& to, session_opened opened,
               std::function<void(base::error)> failed) override {
    const auto& own = config_.peer;
    if (own.ca_file.empty() && !to.is_loopback()) {
      return failed({errc::unsupported,
                     "coordinator " + to.text() + " is not on loopback: set peer.ca_file", 0});
    }
    const auto admitted = hub_->enter();
    if (!admitted) return failed({errc::cancelled, "dsecd is stopping", 0});
    auto one = std::make_shared<attempt>(
        hub_, admitted->who, to,
        own_files{base::peer_file(config_, own.ca_file), base::peer_file(config_, own.cert_file)},
        std::move(opened), std::move(failed));
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

  const base::config config_;
  std::shared_ptr<hub> hub_;
  asio::executor_work_guard<asio::io_context::executor_type> busy_;
  std::thread thread_;
};

}  // namespace

base::result<std::unique_ptr<peer_connector>> peer_connector::start(const base::config& config) {
  auto out = std::make_unique<connector>(config);
  DSEC_TRY(const auto use, out->read_certificate());
  use();
  return out;
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
  return out;
}

}  // namespace dsec::net

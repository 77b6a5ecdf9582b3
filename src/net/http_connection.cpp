// The HTTP phase of a connection: the TLS handshake, if any, then one bounded request at a time,
// checked (request_policy.hpp) before anything answers. GETs are answered from callbacks.get and
// may be many on one connection; a POST of /v1/ticket gives a ticket; an upgrade of /v1/ws hands
// the wire on to the WebSocket phase. Each step has a time limit. Owned by its pending operation,
// runs on the socket's strand. Whatever goes wrong ends in a JSON answer or, when there is no one
// to answer, in a closed socket.
#include <openssl/err.h>
#include <openssl/sslerr.h>

#include <boost/asio/post.hpp>
#include <boost/asio/ssl/error.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <optional>
#include <string>
#include <utility>

#include "base/log.hpp"
#include "net/request_policy.hpp"
#include "net/ws_session.hpp"

namespace dsec::net {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using base::errc;
using beast::error_code;
using steady = std::chrono::steady_clock;

constexpr std::uint32_t header_limit = 8 * 1024;
constexpr std::uint64_t body_limit = 64U << 10U;

std::string_view view(beast::string_view s) {
  return {s.data(), s.size()};
}

/// An IPv4 client of a socket for both may come as ::ffff:127.0.0.1.
bool is_loopback(const asio::ip::address& a) {
  if (a.is_v6() && a.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, a.to_v6()).is_loopback();
  return a.is_loopback();
}

class http_connection final : public peer, public std::enable_shared_from_this<http_connection> {
 public:
  http_connection(std::shared_ptr<hub> h, wire w, hub::admission admitted)
      : hub_(std::move(h)),
        place_(hub_, admitted.who),
        over_limit_(admitted.over_limit),
        stream_(std::move(w)),
        limit_(stream_.get_executor()) {}

  void start() {
    place_.attach(weak_from_this());
    error_code problem;
    auto& tcp_end = stream_.tcp_socket();
    tcp_end.set_option(tcp::no_delay(true), problem);
    const auto here = tcp_end.local_endpoint(problem);
    const auto there = tcp_end.remote_endpoint(problem);
    if (problem) return;  // gone already
    door_ = {here.address().to_string(), here.port(), stream_.secure(),
             [this](const std::string& host) { return stream_.certified_for(host); }};
    local_peer_ = is_loopback(there.address());
    peer_ = there.address().to_string() + ":" + std::to_string(there.port());
    limit_time();
    stream_.async_handshake(
        beast::role_type::server,
        [self = shared_from_this()](error_code failure) { self->shook_hands(failure); });
  }

  // A request is short: nothing is worth waiting for.
  void wind_down() override { abort(); }
  void abort() override {
    asio::post(stream_.get_executor(), [self = shared_from_this()] {
      if (!std::exchange(self->ending_, true)) self->stream_.close();
    });
  }

 private:
  using request_parser = http::request_parser<http::string_body>;

  void shook_hands(error_code problem) {
    if (ending_) return;
    if (!problem) return read_next();
    // http:// to the port of https://
    if (problem.category() != asio::error::get_ssl_category() ||
        ERR_GET_REASON(static_cast<unsigned long>(problem.value())) != SSL_R_HTTP_REQUEST) {
      return stream_.close();
    }
    stream_.drop_tls();
    refuse(errc::protocol, "this port speaks TLS: use https:// or wss://");
  }

  // From now on for one step: the handshake, a request to arrive, its answer to leave.
  void limit_time() {
    limit_.expires_after(hub_->beat.exchange);
    limit_.async_wait([weak = weak_from_this()](error_code cancelled) {
      const auto self = weak.lock();
      // A wait that expired just before it was set anew arrives all the same.
      if (!self || self->ending_ || cancelled || steady::now() < self->limit_.expiry()) return;
      self->stream_.close();
    });
  }

  void read_next() {
    parser_.emplace();
    parser_->header_limit(header_limit);
    parser_->body_limit(body_limit);
    limit_time();
    http::async_read(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](error_code problem, std::size_t) { self->got(problem); });
  }

  void got(error_code problem) {
    if (ending_) return;
    if (problem) return bad_request(problem);
    const http_request& request = parser_->get();
    // A worker does not wait for clients to go.
    const bool worker =
        hub_->callbacks.peer_opened && path_of(view(request.target())) == "/v1/peer";
    if (over_limit_ && !worker) {
      return refuse(errc::unavailable,
                    "too many connections; retry later or raise gateway.max_connections");
    }
    const auto host = request.find(http::field::host);
    if (request.count(http::field::host) != 1) {
      return refuse(errc::invalid_argument, "exactly one Host header is needed");
    }
    if (!host_allowed(view(host->value()), door_)) {
      return refuse(errc::permission_denied, "Host '" + std::string(host->value()) +
                                                 "' is not this gateway; use " + door_.address);
    }
    const auto origin = request.find(http::field::origin);
    if (origin != request.end() &&
        !origin_allowed(view(origin->value()), view(host->value()), door_.secure)) {
      return refuse(errc::permission_denied, "pages of another origin may not use this gateway");
    }
    route(request);
  }

  void bad_request(error_code problem) {
    if (problem == http::error::header_limit) {
      return refuse(http::status::request_header_fields_too_large, errc::too_large,
                    "request header is over " + std::to_string(header_limit) + " bytes");
    }
    if (problem == http::error::body_limit) {
      return refuse(errc::too_large,
                    "request body is over " + std::to_string(body_limit) + " bytes");
    }
    // Errors of the parser have an answer; end of stream, timeouts and socket errors have nobody to
    // hear it.
    if (problem.category() == http::make_error_code(http::error::bad_method).category() &&
        problem != http::error::end_of_stream && problem != http::error::partial_message) {
      return refuse(errc::invalid_argument, "not an HTTP request: " + problem.message());
    }
    stream_.close();
  }

  void route(const http_request& request) {
    const auto path = path_of(view(request.target()));
    if (!path) return refuse(errc::invalid_argument, "request target must be a path");
    const bool takes_post = *path == "/v1/ticket" && hub_->callbacks.opened;
    if (request.method() != (takes_post ? http::verb::post : http::verb::get)) {
      allowed_ = takes_post ? "POST" : "GET";
      return refuse(http::status::method_not_allowed, errc::invalid_argument,
                    "only " + allowed_ + " is allowed here");
    }
    if (takes_post) return give_ticket(request);
    if (*path == "/v1/ws" && hub_->callbacks.opened) return upgrade(request);
    if (*path == "/v1/peer" && hub_->callbacks.peer_opened) return upgrade_peer(request);
    if (auto answer = hub_->callbacks.get({*path, local_peer_ || knows_key(request)}))
      return reply(std::move(*answer), request.keep_alive());
    refuse(errc::not_found, "nothing at '" + std::string(*path) + "'");
  }

  bool is_upgrade(const http_request& request) {
    if (beast::websocket::is_upgrade(request) && buffer_.size() == 0) return true;
    refuse(http::status::upgrade_required, errc::invalid_argument,
           std::string(view(request.target())) +
               " speaks WebSocket, version 13; nothing may follow the upgrade before its answer");
    return false;
  }

  void upgrade_peer(const http_request& request) {
    if (!is_upgrade(request)) return;
    if (const auto why = distrust_of_peer()) {
      base::log::warn("worker_refused", {{"peer", peer_},
                                         {"code", base::to_string(why->code)},
                                         {"why", why->message},
                                         {"ca_file", hub_->peer_ca.string()}});
      return refuse(why->code, why->message);
    }
    if (!place_.become_worker())
      return refuse(errc::capacity, "too many workers are connected to this coordinator");
    hand_over({{}, peer_, {}}, hub_->callbacks.peer_opened, peer_traffic);
  }

  /// A link stays on this host, or both its ends have proven who they are.
  std::optional<base::error> distrust_of_peer() {
    if (!stream_.secure()) {
      if (local_peer_) return std::nullopt;
      return base::error{errc::permission_denied,
                         "a link from another host needs TLS: set gateway.tls_cert and "
                         "peer.ca_file of this coordinator, and peer.ca_file of the worker",
                         0};
    }
    const auto why = stream_.distrust();
    if (why.empty()) return std::nullopt;
    return base::error{errc::unauthenticated,
                       "the certificate of this worker is not trusted: " + why +
                           "; its peer.cert_file must be in its time, for TLS clients, and signed "
                           "by what the coordinator's peer.ca_file holds",
                       0};
  }

  [[nodiscard]] bool knows_key(const http_request& request) const {
    const auto key = bearer_token(view(request[http::field::authorization]));
    return key && hub_->callbacks.gate->by_key(*key).has_value();
  }

  void upgrade(const http_request& request) {
    if (!is_upgrade(request)) return;
    auto who = identify(request);
    if (!who) return refuse(errc::unauthenticated, who.error());
    if (!place_.claim(who->key_id)) {
      return refuse(errc::capacity,
                    "this API key has half of all connections that may be open; close some, or "
                    "raise gateway.max_connections");
    }
    hand_over({std::move(who->principal), peer_, std::move(who->key_id)}, hub_->callbacks.opened,
              client_traffic(hub_->beat));
  }

  /// The end of this phase.
  void hand_over(connection_info info, session_opened opened, const traffic& t) {
    limit_.cancel();
    ending_ = true;
    serve_websocket(hub_, std::move(stream_), std::move(place_), parser_->release(),
                    std::move(info), std::move(opened), t);
  }

  /// By the key or, without one, by the ticket of a browser; else why not.
  tl::expected<auth::identity, std::string> identify(const http_request& request) {
    auto& gate = *hub_->callbacks.gate;
    const auto no = [](std::string why) { return tl::unexpected<std::string>(std::move(why)); };
    if (const auto key = bearer_token(view(request[http::field::authorization]))) {
      if (auto who = gate.by_key(*key)) return *std::move(who);
      return no("this API key is not known");
    }
    const auto ticket = ticket_of(view(request[http::field::sec_websocket_protocol]));
    if (!ticket) return no("send 'Authorization: Bearer <API key>', or a ticket as subprotocol");
    if (auto who = gate.by_ticket(*ticket)) return *std::move(who);
    return no("this ticket is not known, was used or is over");
  }

  void give_ticket(const http_request& request) {
    const auto key = bearer_token(view(request[http::field::authorization]));
    const auto who = key ? hub_->callbacks.gate->by_key(*key) : std::nullopt;
    if (!who) {
      return refuse(errc::unauthenticated,
                    key ? "this API key is not known" : "send 'Authorization: Bearer <API key>'");
    }
    const auto ticket = hub_->callbacks.gate->new_ticket(*who);
    if (!ticket) return refuse(ticket.error().code, ticket.error().message);
    reply({200, "application/json", ticket_body(*ticket, auth::ticket_book::lifetime)},
          request.keep_alive());
  }

  void refuse(errc code, std::string_view why) {
    refuse(static_cast<http::status>(base::http_status(code)), code, why);
  }

  /// With a status that HTTP has for just that.
  void refuse(http::status status, errc code, std::string_view why) {
    reply({static_cast<unsigned>(status), "application/json", error_body(code, why)}, false);
  }

  void reply(http_answer answer, bool keep_alive) {
    auto response = std::make_shared<http::response<http::string_body>>();
    response->result(answer.status);
    response->set(http::field::server, "dsecd");
    response->set(http::field::content_type, answer.content_type);
    response->set(http::field::cache_control, "no-store");
    if (answer.status == static_cast<unsigned>(http::status::unauthorized)) {
      response->set(http::field::www_authenticate, "Bearer");
    }
    if (answer.status == static_cast<unsigned>(http::status::method_not_allowed)) {
      response->set(http::field::allow, allowed_);
    }
    if (answer.status == static_cast<unsigned>(http::status::upgrade_required)) {
      response->set(http::field::upgrade, "websocket");
    }
    response->keep_alive(keep_alive);
    response->body() = std::move(answer.body);
    response->prepare_payload();
    limit_time();
    http::async_write(
        stream_, *response,
        [self = shared_from_this(), response, keep_alive](error_code problem, std::size_t) {
          if (problem || self->ending_) return;
          if (keep_alive) return self->read_next();
          self->linger();
        });
  }

  // Closing with unread bytes in the socket would reset the connection and take the answer with it
  // (RFC 9112, 9.6): our side is shut, then what still comes is thrown away until the client closes
  // or time is up.
  void linger() {
    stream_.async_shut([self = shared_from_this()](error_code) {
      if (self->ending_) return;
      error_code problem;
      self->stream_.tcp_socket().shutdown(tcp::socket::shutdown_send, problem);
      if (!problem) self->drain();
    });
  }

  void drain() {
    buffer_.clear();
    stream_.tcp_socket().async_read_some(
        buffer_.prepare(drain_piece),
        [self = shared_from_this()](error_code problem, std::size_t n) {
          self->drained_ += n;
          if (problem || self->ending_ || self->drained_ > drain_limit) return;
          self->drain();
        });
  }

  static constexpr std::size_t drain_piece = 4096;
  static constexpr std::size_t drain_limit = 1U << 20U;

  const std::shared_ptr<hub> hub_;
  hub_place place_;
  const bool over_limit_;
  wire stream_;
  timer limit_;
  beast::flat_buffer buffer_{header_limit + body_limit};
  std::optional<request_parser> parser_;
  local_door door_;
  std::string peer_;
  std::string allowed_ = "GET";  // where something else was tried
  bool local_peer_ = false;
  std::size_t drained_ = 0;
  bool ending_ = false;  // aborted, or handed on: the wire is not ours any more
};

}  // namespace

http_answer needs_key() {
  return {static_cast<unsigned>(http::status::unauthorized), "application/json",
          error_body(errc::unauthenticated, "send 'Authorization: Bearer <API key>'")};
}

void serve_http(std::shared_ptr<hub> h, wire w, hub::admission admitted) {
  auto on = w.get_executor();
  auto connection = std::make_shared<http_connection>(std::move(h), std::move(w), admitted);
  asio::post(on, [connection] { connection->start(); });
}

}  // namespace dsec::net

// The HTTP phase of a connection: one bounded request at a time, checked (request_policy.hpp)
// before anything answers. GETs are answered from callbacks.get and may be many on one connection;
// an upgrade of /v1/ws hands the socket on to the WebSocket phase. Owned by its pending operation,
// runs on the socket's strand. Whatever goes wrong ends in a JSON answer or, when there is no one
// to answer, in a closed socket.
#include <boost/asio/post.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/rate_policy.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>
#include <boost/beast/websocket/rfc6455.hpp>
#include <optional>

#include "net/request_policy.hpp"
#include "net/ws_session.hpp"

namespace dsec::net {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;
using base::errc;
using beast::error_code;
using namespace std::chrono_literals;

constexpr std::uint32_t header_limit = 8 * 1024;
constexpr std::uint64_t body_limit = 64U << 10U;
constexpr auto exchange_timeout =
    10s;  // for a whole request to arrive, and for its answer to leave

std::string_view view(beast::string_view s) {
  return {s.data(), s.size()};
}

class http_connection final : public peer, public std::enable_shared_from_this<http_connection> {
 public:
  http_connection(std::shared_ptr<hub> h, socket s, hub::admission admitted)
      : hub_(std::move(h)),
        place_(hub_, admitted.who),
        over_limit_(admitted.over_limit),
        stream_(std::move(s)) {}

  void start() {
    place_.attach(weak_from_this());
    error_code problem;
    stream_.socket().set_option(tcp::no_delay(true), problem);
    const auto here = stream_.socket().local_endpoint(problem);
    const auto there = stream_.socket().remote_endpoint(problem);
    if (problem) return;  // gone already
    door_ = {here.address().to_string(), here.port()};
    peer_ = there.address().to_string() + ":" + std::to_string(there.port());
    read_next();
  }

  // A request is short: nothing is worth waiting for.
  void wind_down() override { abort(); }
  void abort() override {
    asio::post(stream_.get_executor(), [self = shared_from_this()] {
      self->ending_ = true;
      self->stream_.close();
    });
  }

 private:
  using request_parser = http::request_parser<http::string_body>;

  void read_next() {
    parser_.emplace();
    parser_->header_limit(header_limit);
    parser_->body_limit(body_limit);
    stream_.expires_after(exchange_timeout);
    http::async_read(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](error_code problem, std::size_t) { self->got(problem); });
  }

  void got(error_code problem) {
    if (ending_) return;
    if (problem) return bad_request(problem);
    const http_request& request = parser_->get();
    if (over_limit_) {
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
    if (origin != request.end() && !origin_allowed(view(origin->value()), view(host->value()))) {
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
    if (request.method() != http::verb::get) {
      return refuse(http::status::method_not_allowed, errc::invalid_argument,
                    "only GET is allowed here");
    }
    if (*path == "/v1/ws" && hub_->callbacks.opened) return upgrade(request);
    if (*path == "/v1/peer" && hub_->callbacks.peer_opened) return upgrade_peer(request);
    if (auto answer = hub_->callbacks.get(*path))
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
    stream_.expires_never();
    serve_websocket(hub_, stream_.release_socket(), std::move(place_), parser_->release(),
                    {{}, peer_}, hub_->callbacks.peer_opened, peer_traffic);
  }

  void upgrade(const http_request& request) {
    if (!is_upgrade(request)) return;
    const auto key = bearer_token(view(request[http::field::authorization]));
    auto principal = key ? hub_->callbacks.authenticate(*key) : std::nullopt;
    if (!principal) {
      return refuse(errc::unauthenticated,
                    key ? "this API key is not known" : "send 'Authorization: Bearer <API key>'");
    }
    stream_.expires_never();
    serve_websocket(hub_, stream_.release_socket(), std::move(place_), parser_->release(),
                    {std::move(*principal), peer_}, hub_->callbacks.opened,
                    client_traffic(hub_->beat));
  }

  void refuse(errc code, std::string_view why) {
    refuse(static_cast<http::status>(http_status(code)), code, why);
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
      response->set(http::field::allow, "GET");
    }
    if (answer.status == static_cast<unsigned>(http::status::upgrade_required)) {
      response->set(http::field::upgrade, "websocket");
    }
    response->keep_alive(keep_alive);
    response->body() = std::move(answer.body);
    response->prepare_payload();
    stream_.expires_after(exchange_timeout);
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
    error_code problem;
    stream_.socket().shutdown(tcp::socket::shutdown_send, problem);
    if (!problem) drain();
  }

  void drain() {
    buffer_.clear();
    stream_.async_read_some(buffer_.prepare(drain_piece),
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
  beast::basic_stream<tcp, executor, beast::unlimited_rate_policy> stream_;
  beast::flat_buffer buffer_{header_limit + body_limit};
  std::optional<request_parser> parser_;
  local_door door_;
  std::string peer_;
  std::size_t drained_ = 0;
  bool ending_ = false;
};

}  // namespace

void serve_http(std::shared_ptr<hub> h, socket s, hub::admission admitted) {
  auto on = s.get_executor();
  auto connection = std::make_shared<http_connection>(std::move(h), std::move(s), admitted);
  asio::post(on, [connection] { connection->start(); });
}

}  // namespace dsec::net

// What HTTP and WebSocket run over: a TCP socket, with TLS or without, behind one type, so that
// there is one code path for both. A stream in the sense of Asio and Beast; moved while nothing is
// pending. Internal to src/net; used on the socket's strand.
#pragma once

#include <boost/asio/post.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/bind_handler.hpp>
#include <boost/beast/core/role.hpp>
#include <boost/beast/ssl/ssl_stream.hpp>
#include <string>
#include <utility>
#include <variant>

#include "net/hub.hpp"

namespace dsec::net {

class wire {
 public:
  using executor_type = executor;
  using next_layer_type = socket;

  /// Plain when there is no context.
  wire(socket s, const std::shared_ptr<asio::ssl::context>& tls)
      : end_(tls ? either(std::in_place_type<tls_stream>, std::move(s), *tls)
                 : either(std::in_place_type<socket>, std::move(s))) {}

  executor_type get_executor() { return tcp_socket().get_executor(); }
  socket& next_layer() { return tcp_socket(); }
  socket& tcp_socket() {
    auto* tls = std::get_if<tls_stream>(&end_);
    return tls != nullptr ? tls->next_layer() : std::get<socket>(end_);
  }
  [[nodiscard]] bool secure() const { return std::holds_alternative<tls_stream>(end_); }

  /// Whether the certificate that this connection was shown is for a name or address.
  bool certified_for(const std::string& host);

  /// Before the handshake, as its client: the other side's certificate must be for this address, or
  /// for the name when it is none. False: it cannot be asked for that.
  bool expect(const std::string& host);

  /// Why the certificate of the other side is not trusted; empty when it is. After the handshake,
  /// also one that has failed for that.
  std::string distrust();

  /// What a client without TLS gets is an answer it can read. After a handshake that has failed.
  void drop_tls() {
    auto s = std::move(tcp_socket());
    end_.emplace<socket>(std::move(s));
  }

  template <class Handler>
  void async_handshake(boost::beast::role_type as, Handler&& done) {
    if (auto* tls = std::get_if<tls_stream>(&end_))
      return static_cast<void>(tls->async_handshake(as == boost::beast::role_type::server
                                                        ? asio::ssl::stream_base::server
                                                        : asio::ssl::stream_base::client,
                                                    std::forward<Handler>(done)));
    asio::post(get_executor(), boost::beast::bind_front_handler(std::forward<Handler>(done),
                                                                boost::system::error_code()));
  }

  template <class Buffers, class Handler>
  void async_read_some(const Buffers& into, Handler&& done) {
    if (auto* tls = std::get_if<tls_stream>(&end_))
      return static_cast<void>(tls->async_read_some(into, std::forward<Handler>(done)));
    std::get<socket>(end_).async_read_some(into, std::forward<Handler>(done));
  }

  template <class Buffers, class Handler>
  void async_write_some(const Buffers& from, Handler&& done) {
    if (auto* tls = std::get_if<tls_stream>(&end_))
      return static_cast<void>(tls->async_write_some(from, std::forward<Handler>(done)));
    std::get<socket>(end_).async_write_some(from, std::forward<Handler>(done));
  }

  /// Says that nothing more comes. With TLS that waits for the peer to say so too: whoever calls
  /// has a time limit.
  template <class Handler>
  void async_shut(Handler&& done) {
    if (auto* tls = std::get_if<tls_stream>(&end_))
      return static_cast<void>(tls->async_shutdown(std::forward<Handler>(done)));
    boost::system::error_code problem;
    std::get<socket>(end_).shutdown(tcp::socket::shutdown_send, problem);
    asio::post(get_executor(),
               boost::beast::bind_front_handler(std::forward<Handler>(done), problem));
  }

  /// Ends now; what is pending is aborted.
  void close() {
    boost::system::error_code ignored;
    tcp_socket().close(ignored);
  }

  /// How Beast ends a WebSocket: otherwise it waits, without a limit, for the client to close it
  /// too.
  template <class Handler>
  friend void async_teardown(boost::beast::role_type, wire& w, Handler&& done) {
    w.async_shut(std::forward<Handler>(done));
  }

 private:
  using tls_stream = boost::beast::ssl_stream<socket>;
  using either = std::variant<socket, tls_stream>;

  either end_;
};

/// Serves HTTP on a fresh connection; an upgrade hands it on to serve_websocket (ws_session.hpp).
void serve_http(std::shared_ptr<hub> h, wire w, hub::admission admitted);

}  // namespace dsec::net

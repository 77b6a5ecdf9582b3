// The other end of /v1/peer: opens WebSockets to coordinators, from a thread of its own. Beast-free
// header; knows nothing of actors. Thread-safe; callbacks are called on that thread and must only
// hand over.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "net/listener.hpp"

namespace dsec::net {

struct peer_address {
  std::string host;  // an IP address, IPv6 without brackets, or "localhost"
  std::uint16_t port = 0;

  [[nodiscard]] bool is_loopback() const;
  /// As in a Host header.
  [[nodiscard]] std::string text() const;
};

/// HOST:PORT or [HOST]:PORT. errc::invalid_argument.
base::result<peer_address> parse_peer_address(std::string_view text);

class peer_connector {
 public:
  /// With peer.ca_file links are TLS: we show peer.cert_file, and a coordinator must show a
  /// certificate of those authorities for the address that was dialled. A file that cannot be used
  /// is an error that names it.
  static base::result<std::unique_ptr<peer_connector>> start(const base::config& config);
  virtual ~peer_connector() = default;

  /// Reads these files again; nothing is changed before what it returns is called. Links opened
  /// from then on are opened with them.
  virtual base::result<std::function<void()>> read_certificate() = 0;

  /// Tries once, for some seconds: then one of the two is called. errc::unsupported off loopback
  /// without TLS; errc::unauthenticated when one side does not believe the other's certificate.
  virtual void connect(
      const peer_address& to,
      std::function<session_handler(std::shared_ptr<ws_session>, connection_info)> opened,
      std::function<void(base::error)> failed) = 0;
  /// Closes all sessions, ends what is being tried, joins the thread.
  virtual void stop() = 0;
};

}  // namespace dsec::net

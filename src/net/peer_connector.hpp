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

/// HOST:PORT or [HOST]:PORT. errc::invalid_argument; errc::unsupported off loopback.
base::result<peer_address> parse_peer_address(std::string_view text);

class peer_connector {
 public:
  static std::unique_ptr<peer_connector> start();
  virtual ~peer_connector() = default;

  /// Tries once, for some seconds: then one of the two is called.
  virtual void connect(
      const peer_address& to,
      std::function<session_handler(std::shared_ptr<ws_session>, connection_info)> opened,
      std::function<void(base::error)> failed) = 0;
  /// Closes all sessions, ends what is being tried, joins the thread.
  virtual void stop() = 0;
};

}  // namespace dsec::net

// What an HTTP request must look like before the gateway listens to it: Host, Origin and
// Authorization, and the typed error bodies of refusals. Pure functions over text, any
// thread; nothing here can fail.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace dsec::net {

/// The door a request came through.
struct local_door {
  std::string address;  // literal of the accepted socket's own end, e.g. "127.0.0.1" or "::1"
  std::uint16_t port = 0;
  bool secure = false;  // TLS
  /// Whether the door's certificate is for a name; no page can have one for a name of its own.
  std::function<bool(const std::string& host)> certified = {};
};

/// Host must name this very door: a loopback name, the address the connection was accepted on or a
/// name of its certificate, with our port. A page whose name was rebound to 127.0.0.1 still sends
/// its own name here, and is refused.
bool host_allowed(std::string_view host, const local_door& door);

/// Origin must be the page of this very host ("http://" + Host, "https://" with TLS), in whatever
/// case.
bool origin_allowed(std::string_view origin, std::string_view host, bool secure = false);

/// KEY of "Bearer KEY"; nullopt for any other scheme or an empty key.
std::optional<std::string_view> bearer_token(std::string_view authorization);

/// TICKET of "dsec.ticket.TICKET" among the subprotocols that a client offers.
std::optional<std::string_view> ticket_of(std::string_view offered);

/// Which of them the server answers with: "dsec", else the ticket; empty when neither is there.
std::string_view chosen_subprotocol(std::string_view offered);

/// {"ticket":…,"expiresInSeconds":…}
std::string ticket_body(std::string_view ticket, std::chrono::seconds lifetime);

/// {"error":{"code":…,"message":…,"retryable":…}}
std::string error_body(base::errc code, std::string_view message);
/// What such a body says, of whatever came instead of what was asked for.
std::optional<base::error> read_error_body(std::string_view body);

/// The path of a request target without its query; nullopt unless it is in origin form ("/…").
std::optional<std::string_view> path_of(std::string_view target);

}  // namespace dsec::net

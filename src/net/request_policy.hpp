// What an HTTP request must look like before the gateway listens to it: Host, Origin and
// Authorization, and the status and typed error bodies of refusals. Pure functions over text, any
// thread; nothing here can fail.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.hpp"

namespace dsec::net {

/// The door a request came through.
struct local_door {
  std::string address;  // literal of the accepted socket's own end, e.g. "127.0.0.1" or "::1"
  std::uint16_t port = 0;
};

/// Host must name this very door: a loopback name or the address the connection was accepted on,
/// with our port. A page whose name was rebound to 127.0.0.1 still sends its own name here, and is
/// refused.
bool host_allowed(std::string_view host, const local_door& door);

/// Origin must be the page of this very host ("http://" + Host), in whatever case.
bool origin_allowed(std::string_view origin, std::string_view host);

/// KEY of "Bearer KEY"; nullopt for any other scheme or an empty key.
std::optional<std::string_view> bearer_token(std::string_view authorization);

/// The status of an HTTP answer that is this error (docs/errors.md).
unsigned http_status(base::errc code);

/// {"error":{"code":…,"message":…,"retryable":…}}
std::string error_body(base::errc code, std::string_view message);

/// The path of a request target without its query; nullopt unless it is in origin form ("/…").
std::optional<std::string_view> path_of(std::string_view target);

}  // namespace dsec::net

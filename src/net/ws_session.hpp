// The WebSocket phase of a connection; internal to src/net. See session.hpp.
#pragma once

#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <functional>
#include <string>

#include "net/encoding.hpp"
#include "net/wire.hpp"

namespace dsec::net {

using http_request = boost::beast::http::request<boost::beast::http::string_body>;
using session_opened = std::function<session_handler(std::shared_ptr<ws_session>, connection_info)>;

/// What may come and go over a session.
struct traffic {
  std::size_t first_message = 0;  // bytes, before trust()
  std::size_t message = 0;        // bytes
  std::size_t pending = 0;        // of large messages that somebody holds; then nothing is read
  std::size_t queued = 0;         // for the other side; then the connection is closed
  encoding fixed = encoding::undecided;
  heartbeat beat;
};
traffic client_traffic(const heartbeat& beat);
/// A peer reads all the time, and what may be under way both sides bound themselves
/// (proto/peer.hpp). One that is gone without a word is given up in a few seconds.
extern const traffic peer_traffic;

/// Answers the upgrade and serves the session. Call on the wire's strand.
void serve_websocket(std::shared_ptr<hub> h, wire w, hub_place place, http_request upgrade,
                     connection_info info, session_opened opened, const traffic& t);

/// Asks for the upgrade to `path` and serves the session; `failed` says why there is none. Call on
/// the wire's strand.
void open_websocket(std::shared_ptr<hub> h, wire w, hub_place place, const std::string& host,
                    const std::string& path, connection_info info, session_opened opened,
                    std::function<void(base::error)> failed, const traffic& t);

}  // namespace dsec::net

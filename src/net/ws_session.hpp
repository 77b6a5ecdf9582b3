// The WebSocket phase of a connection; internal to src/net. See ws_session.cpp.
#pragma once

#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>

#include "net/hub.hpp"

namespace dsec::net {

using http_request = boost::beast::http::request<boost::beast::http::string_body>;

/// Answers the upgrade and serves the session. Call on the socket's strand.
void serve_websocket(std::shared_ptr<hub> h, socket s, hub_place place, http_request upgrade,
                     connection_info info);

}  // namespace dsec::net

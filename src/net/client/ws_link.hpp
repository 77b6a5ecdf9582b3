// A WebSocket to the gateway that is upgraded and has said nothing yet, for clients that need more
// than ws_client does. Beast is expensive to compile: include it where it is needed.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/websocket/stream.hpp>
#include <memory>
#include <string>

#include "base/result.hpp"

namespace dsec::client {

using ws_link = boost::beast::websocket::stream<boost::asio::ip::tcp::socket, false>;

/// `url` as in ws_client::connect. Blocks.
base::result<std::unique_ptr<ws_link>> open_link(boost::asio::io_context& context,
                                                 const std::string& url, const std::string& key);

/// What a failed operation of a link is.
base::error link_failed(const char* doing, boost::system::error_code problem);

}  // namespace dsec::client

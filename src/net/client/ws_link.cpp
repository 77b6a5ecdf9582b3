#include "net/client/ws_link.hpp"

#include <charconv>

#include "proto/limits.hpp"

namespace dsec::client {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace websocket = beast::websocket;
using asio::ip::tcp;
using base::errc;
using base::fail;
using boost::system::error_code;

base::result<tcp::endpoint> endpoint_of(const std::string& url) {
  const auto scheme = url.find("://");
  const std::string authority = scheme == std::string::npos ? url : url.substr(scheme + 3);
  const auto colon = authority.find(':');
  error_code problem;
  const auto address = asio::ip::make_address(authority.substr(0, colon), problem);
  std::uint16_t port = 0;
  if (colon != std::string::npos) {
    std::from_chars(authority.data() + colon + 1, authority.data() + authority.size(), port);
  }
  if (problem || port == 0)
    return fail(errc::invalid_argument, "'" + url + "' is not http://ADDRESS:PORT");
  return tcp::endpoint(address, port);
}

}  // namespace

base::error link_failed(const char* doing, error_code problem) {
  return {errc::unavailable, std::string("cannot ") + doing + ": " + problem.message(), 0};
}

base::result<std::unique_ptr<ws_link>> open_link(asio::io_context& context, const std::string& url,
                                                 const std::string& key) {
  DSEC_TRY(const tcp::endpoint where, endpoint_of(url));
  auto made = std::make_unique<ws_link>(context);
  auto& stream = *made;
  error_code problem;
  stream.next_layer().connect(where, problem);
  if (problem) return fail(link_failed("connect", problem));
  stream.next_layer().set_option(tcp::no_delay(true), problem);
  stream.set_option(websocket::stream_base::decorator([&key](websocket::request_type& request) {
    request.set(beast::http::field::authorization, "Bearer " + key);
  }));
  stream.binary(true);
  stream.auto_fragment(false);
  stream.read_message_max(proto::max_message_bytes);
  stream.handshake(where.address().to_string() + ":" + std::to_string(where.port()), "/v1/ws",
                   problem);
  if (problem) return fail(link_failed("upgrade to WebSocket", problem));
  return made;
}

}  // namespace dsec::client

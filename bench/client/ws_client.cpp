// See ws_client.hpp.
#include "client/ws_client.hpp"

#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket/stream.hpp>
#include <charconv>

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

base::error failed(const char* doing, error_code problem) {
  return {errc::unavailable, std::string("cannot ") + doing + ": " + problem.message(), 0};
}

errc code_named(const std::string& name) {
  for (std::uint16_t i = 0; i <= static_cast<std::uint16_t>(errc::cancelled); ++i) {
    if (base::to_string(static_cast<errc>(i)) == name) return static_cast<errc>(i);
  }
  return errc::internal;
}

}  // namespace

struct ws_client::link {
  asio::io_context context{1};
  websocket::stream<tcp::socket, false> stream{context};
  std::uint64_t last_id = 0;
};

reply::reply(proto::frame f)
    : frame_(std::move(f)),
      reader_(
          std::make_unique<capnp::FlatArrayMessageReader>(frame_.words(), proto::reader_options())),
      body_(reader_->getRoot<proto::Reply>().getBody()) {}

ws_client::ws_client(std::unique_ptr<link> l) : link_(std::move(l)) {}
ws_client::~ws_client() = default;
ws_client::ws_client(ws_client&&) noexcept = default;
ws_client& ws_client::operator=(ws_client&&) noexcept = default;

base::result<ws_client> ws_client::connect(const std::string& url, const std::string& key) {
  DSEC_TRY(const tcp::endpoint where, endpoint_of(url));
  auto made = std::make_unique<link>();
  auto& stream = made->stream;
  error_code problem;
  stream.next_layer().connect(where, problem);
  if (problem) return fail(failed("connect", problem));
  stream.next_layer().set_option(tcp::no_delay(true), problem);
  stream.set_option(websocket::stream_base::decorator([&key](websocket::request_type& request) {
    request.set(beast::http::field::authorization, "Bearer " + key);
  }));
  stream.binary(true);
  stream.auto_fragment(false);
  stream.read_message_max(proto::max_message_bytes);
  stream.handshake(where.address().to_string() + ":" + std::to_string(where.port()), "/v1/ws",
                   problem);
  if (problem) return fail(failed("upgrade to WebSocket", problem));
  ws_client client(std::move(made));
  DSEC_CHECK(client.call([](proto::Request::Builder r) {
    r.getBody().initHello().setProtocolVersion(proto::protocol_version);
  }));
  return client;
}

base::result<void> ws_client::send(const proto::frame& f) {
  error_code problem;
  link_->stream.write(asio::buffer(f.bytes().data(), f.bytes().size()), problem);
  if (problem) return fail(failed("send a request", problem));
  return {};
}

base::result<proto::frame> ws_client::receive() {
  beast::flat_buffer buffer;
  error_code problem;
  link_->stream.read(buffer, problem);
  if (problem) return fail(failed("receive a reply", problem));
  const auto bytes = buffer.cdata();
  return proto::frame::from_bytes({static_cast<const std::byte*>(bytes.data()), bytes.size()});
}

base::result<reply> ws_client::call(const std::function<void(proto::Request::Builder)>& fill) {
  capnp::MallocMessageBuilder builder;
  auto request = builder.initRoot<proto::Request>();
  request.setId(++link_->last_id);
  fill(request);
  DSEC_CHECK(send(proto::frame::from_builder(builder)));
  DSEC_TRY(auto frame, receive());
  reply answer(std::move(frame));
  if (answer.body().isError()) {
    const auto error = answer.body().getError();
    return fail(code_named(error.getCode()), error.getMessage());
  }
  return answer;
}

}  // namespace dsec::client

#include "net/client/ws_client.hpp"

#include <boost/beast/core/flat_buffer.hpp>

#include "net/client/ws_link.hpp"

namespace dsec::client {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using base::errc;
using base::fail;
using boost::system::error_code;

}  // namespace

struct ws_client::link {
  asio::io_context context{1};
  std::unique_ptr<ws_link> stream;
  std::uint64_t last_id = 0;
};

reply::reply(proto::frame f)
    : frame_(std::move(f)),
      reader_(std::make_unique<capnp::FlatArrayMessageReader>(
          frame_.words(), proto::reader_options(frame_.words().size()))),
      body_(reader_->getRoot<proto::Reply>().getBody()) {}

ws_client::ws_client(std::unique_ptr<link> l) : link_(std::move(l)) {}
ws_client::~ws_client() = default;
ws_client::ws_client(ws_client&&) noexcept = default;
ws_client& ws_client::operator=(ws_client&&) noexcept = default;

base::result<ws_client> ws_client::connect(const std::string& url, const std::string& key) {
  auto made = std::make_unique<link>();
  DSEC_TRY(made->stream, open_link(made->context, url, key));
  ws_client client(std::move(made));
  DSEC_CHECK(client.call([](proto::Request::Builder r) {
    r.getBody().initHello().setProtocolVersion(proto::protocol_version);
  }));
  return client;
}

base::result<void> ws_client::send(const proto::frame& f) {
  error_code problem;
  link_->stream->write(asio::buffer(f.bytes().data(), f.bytes().size()), problem);
  if (problem) return fail(link_failed("send a request", problem));
  return {};
}

base::result<proto::frame> ws_client::receive() {
  beast::flat_buffer buffer;
  error_code problem;
  link_->stream->read(buffer, problem);
  if (problem) return fail(link_failed("receive a reply", problem));
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
    const auto code = base::parse_errc(error.getCode().cStr());
    return fail(code.value_or(errc::internal), error.getMessage());
  }
  return answer;
}

}  // namespace dsec::client

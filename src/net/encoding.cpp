#include "net/encoding.hpp"

#include "proto/client.capnp.h"
#include "proto/json.hpp"

namespace dsec::net {

base::result<proto::frame> decode(encoding e, std::span<const std::byte> message,
                                  std::size_t most) {
  if (e == encoding::binary) return proto::frame::from_bytes(message, most);
  if (e == encoding::packed) return proto::frame::from_packed(message);
  return proto::from_json(capnp::Schema::from<proto::Request>(),
                          {reinterpret_cast<const char*>(message.data()), message.size()});
}

namespace {

const auto reply_schema = capnp::Schema::from<proto::Reply>();

/// What is sent instead of a reply that no text can be made of.
std::string refusal(const proto::frame& reply, const base::error& why) {
  std::uint64_t id = 0;
  (void)proto::view<proto::Reply>(reply).read([&](proto::Reply::Reader r) { id = r.getId(); });
  capnp::MallocMessageBuilder message;
  auto instead = message.initRoot<proto::Reply>();
  instead.setId(id);
  auto error = instead.initBody().initError();
  error.setCode(std::string(base::to_string(why.code)));
  error.setMessage(why.message);
  return *proto::to_json(reply_schema, proto::frame::from_builder(message));
}

}  // namespace

outgoing::outgoing(encoding e, proto::frame reply) : frame_(std::move(reply)) {
  if (e == encoding::packed) coded_ = frame_.packed();
  if (e != encoding::text) return;
  auto text = proto::to_json(reply_schema, frame_);
  if (text && text->size() > proto::max_message_bytes) {
    text = base::fail(base::errc::too_large, "the reply is over " +
                                                 std::to_string(proto::max_message_bytes) +
                                                 " bytes as text; ask for less, or in binary");
  }
  coded_ = text ? *std::move(text) : refusal(frame_, text.error());
}

}  // namespace dsec::net

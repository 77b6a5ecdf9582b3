#include "net/encoding.hpp"

#include "base/log.hpp"
#include "proto/client.capnp.h"
#include "proto/json.hpp"

namespace dsec::net {

base::result<proto::frame> decode(encoding e, std::span<const std::byte> message) {
  if (e == encoding::binary) return proto::frame::from_bytes(message);
  return proto::from_json(capnp::Schema::from<proto::Request>(),
                          {reinterpret_cast<const char*>(message.data()), message.size()});
}

outgoing::outgoing(encoding e, proto::frame reply) : frame_(std::move(reply)) {
  if (e != encoding::text) return;
  auto text = proto::to_json(capnp::Schema::from<proto::Reply>(), frame_);
  if (!text) base::log::error("reply_not_encoded", {{"error", text.error().to_string()}});
  text_ = text ? *std::move(text)
               : R"({"id":"0","body":{"error":{"code":"internal","message":)"
                 R"("the reply cannot be written as text","object":"","retryable":false}}})";
}

}  // namespace dsec::net

// What anybody may send to /v1/peer before he has proven anything, and what a coordinator or worker
// reads afterwards: bytes to a frame, the hello in it, every field of it, and the reply inside.
// Errors are values; anything else is a finding.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "proto/client.capnp.h"
#include "proto/peer.hpp"
#include "read_all.hpp"

namespace proto = dsec::proto;

namespace {

void look_at(proto::PeerMessage::Reader message) {
  if (const auto hello = proto::read_hello(message)) {
    // What was accepted can be said again, and is the same.
    const auto again = proto::hello_frame(*hello);
    const auto same = proto::view<proto::PeerMessage>(again).read([&](auto m) {
      const auto back = proto::read_hello(m);
      return back && back->edge == hello->edge && back->nonce == hello->nonce;
    });
    if (!same || !*same) std::abort();
  }
  dsec::fuzz::read_all(message);
  if (!message.getBody().isReply()) return;
  const auto data = message.getBody().getReply().getReply();
  const auto reply =
      proto::frame::from_reply(std::as_bytes(std::span(data.begin(), data.size())), 7);
  if (!reply) return;
  std::uint64_t id = 0;
  const auto ok =
      proto::view<proto::Reply>(*reply).read([&](proto::Reply::Reader r) { id = r.getId(); });
  if (ok && id != 7) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto frame =
      proto::frame::from_bytes(std::as_bytes(std::span(data, size)), proto::max_peer_message_bytes);
  if (!frame) return 0;
  static_cast<void>(proto::view<proto::PeerMessage>(*std::move(frame)).read(look_at));
  return 0;
}

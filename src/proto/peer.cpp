#include "proto/peer.hpp"

#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>
#include <array>

#include "base/ids.hpp"
#include "base/text.hpp"
#include "proto/text.hpp"

namespace dsec::proto {
namespace {

using base::errc;
using base::fail;

constexpr std::size_t nonce_bits = 256;
constexpr std::size_t longest_name = 64;
/// Of an edge: room for the rest of its sandboxes' ids.
constexpr std::size_t longest_edge = 40;

/// With its length before it, so that two lists of parts are never one text.
void append(std::string& to, std::string_view part) {
  to += std::to_string(part.size());
  to += ':';
  to += part;
}

bool is_token(std::string_view text) {
  return !text.empty() && text.size() <= longest_name &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
         });
}

}  // namespace

base::result<peer_hello> read_hello(PeerMessage::Reader message) {
  const auto body = message.getBody();
  if (!body.isHello()) return fail(errc::protocol, "the first message of a worker must be hello");
  const auto hello = body.getHello();
  peer_hello out;
  out.version = hello.getVersion();
  if (out.version != peer_version) {
    return fail(errc::unsupported, "version " + std::to_string(out.version) +
                                       " of the peer protocol is not spoken here, " +
                                       std::to_string(peer_version) +
                                       " is; use one release of dsecd on all machines");
  }
  out.edge = text_of(hello.getEdge());
  if (!base::is_valid_id(out.edge) || out.edge.size() > longest_edge)
    return fail(errc::invalid_argument, "a worker's node.name must be a-z, 0-9 and '-'");
  out.node_id = text_of(hello.getNodeId());
  if (!is_token(out.node_id)) return fail(errc::protocol, "a worker without a readable nodeId");
  out.nonce = text_of(hello.getNonce());
  DSEC_CHECK(check_nonce(out.nonce));
  out.program = text_of(hello.getProgram());
  return out;
}

frame hello_frame(const peer_hello& hello) {
  capnp::MallocMessageBuilder message;
  auto out = message.initRoot<PeerMessage>().initBody().initHello();
  out.setVersion(hello.version);
  out.setEdge(hello.edge);
  out.setNodeId(hello.node_id);
  out.setNonce(hello.nonce);
  out.setProgram(hello.program);
  return frame::from_builder(message);
}

std::string peer_proof(std::string_view secret, peer_side side, const peer_hello& hello,
                       std::string_view coordinator_nonce) {
  std::string said;
  append(said, "dsec peer link");
  append(said, side == peer_side::worker ? "worker" : "coordinator");
  append(said, std::to_string(hello.version));
  for (const auto* part : {&hello.edge, &hello.node_id, &hello.nonce, &hello.program})
    append(said, *part);
  append(said, coordinator_nonce);
  std::array<unsigned char, 32> mac{};
  unsigned size = 0;
  if (::HMAC(::EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
             reinterpret_cast<const unsigned char*>(said.data()), said.size(), mac.data(),
             &size) == nullptr) {
    return {};  // equal to no proof
  }
  return base::hex({reinterpret_cast<const char*>(mac.data()), size});
}

std::string peer_nonce() {
  return base::random_token(nonce_bits);
}

base::result<void> check_nonce(std::string_view nonce) {
  if (is_token(nonce) && nonce.size() >= nonce_bits / 5) return {};
  return fail(errc::protocol, "no nonce in the handshake");
}

}  // namespace dsec::proto

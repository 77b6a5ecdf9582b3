// The peer protocol's handshake and limits (peer.capnp). Both sides prove that they know the shared
// secret, and neither sends it: a proof is an HMAC over both nonces and all that hello says, with
// the side's own name in it, so that none can be sent back or used again. Pure, any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "proto/frame.hpp"
#include "proto/peer.capnp.h"

namespace dsec::proto {

inline constexpr std::uint32_t peer_version = 1;

/// One message of the link: the largest of a client, and what stands around it.
inline constexpr std::size_t max_peer_message_bytes = max_message_bytes + (64U << 10U);
/// The same before the other side has proven anything.
inline constexpr std::size_t max_peer_hello_bytes = 4096;
/// Bytes queued for the other side of a link before it is given up; what both sides have under way
/// stays below it (actors/link_share.hpp), so that only one that does not read at all comes to
/// that.
inline constexpr std::size_t max_peer_queued_bytes = 512U << 20U;
/// Bytes of large requests and large replies under way on a link; further large ones wait
/// (actors/link_share.hpp).
inline constexpr std::size_t max_link_bytes = 256U << 20U;
inline constexpr std::size_t shortest_peer_secret = 32;
inline constexpr std::size_t longest_peer_secret = 4096;

/// What a worker says first.
struct peer_hello {
  std::uint32_t version = peer_version;
  std::string edge;
  std::string node_id;
  std::string nonce;
  std::string program;
};

/// errc::protocol for what is no hello, errc::unsupported for another version, invalid_argument for
/// names that are none.
base::result<peer_hello> read_hello(PeerMessage::Reader message);
frame hello_frame(const peer_hello& hello);

enum class peer_side : std::uint8_t { worker, coordinator };
/// The proof of one side, as text; compared with base::same_secret.
std::string peer_proof(std::string_view secret, peer_side side, const peer_hello& hello,
                       std::string_view coordinator_nonce);

/// A nonce: 256 random bits as text.
std::string peer_nonce();

/// errc::protocol unless the text has the form of a nonce.
base::result<void> check_nonce(std::string_view nonce);

}  // namespace dsec::proto

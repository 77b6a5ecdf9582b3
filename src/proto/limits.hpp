// Limits of the client protocol, beside the schema they bound. Everything larger is refused with a
// typed error.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace dsec::proto {

inline constexpr std::uint32_t protocol_version = 1;
inline constexpr std::uint32_t oldest_protocol_version = 1;

/// What a server may have and a client may want, by name (hello).
inline constexpr const char* feature_streams = "streams";
inline constexpr std::size_t max_features = 64;

/// One WebSocket message, bytes.
inline constexpr std::size_t max_message_bytes = 16U << 20U;
/// Data in one message (file pieces, output, stdin), bytes: leaves room for the envelope.
inline constexpr std::size_t max_data_bytes = 8U << 20U;
/// Output in one reply to readOutput, bytes, however much is asked for.
inline constexpr std::size_t max_output_bytes = 4U << 20U;
/// The same when the request waits for it (waitMs).
inline constexpr std::size_t max_waited_output_bytes = 128U << 10U;
/// Segments in one Cap'n Proto message.
inline constexpr std::size_t max_segments = 64;
/// Words a reader may traverse of a message of `words`, so that neither shared sub-objects nor
/// lists of nothing amplify: what is small stays cheap, and nothing costs more than 8 x the largest
/// message.
constexpr std::uint64_t traversal_limit_words(std::size_t words) {
  constexpr std::uint64_t most = 8 * max_message_bytes / 8;
  return std::min<std::uint64_t>(most, (64U << 10U) + 64 * std::uint64_t{words});
}
/// Nesting of a message.
inline constexpr int nesting_limit = 16;

/// Requests in flight on one connection; further ones are not read until one is answered.
inline constexpr std::size_t max_in_flight = 256;
/// Bytes of requests of one connection that nobody has dealt with yet; then nothing more is read.
inline constexpr std::size_t max_pending_bytes = 32U << 20U;
/// Bytes of large replies (files, output, lists) queued for one connection or in the making;
/// further requests for such wait their turn, and output that would come inline is left to be asked
/// for.
inline constexpr std::size_t max_promised_bytes = 48U << 20U;
/// Of output that was waited for, queued beyond that: it comes while promises are not kept.
inline constexpr std::size_t max_unpromised_bytes = 4U << 20U;
/// Streams open on one connection, and what one of them may have on its way to the socket: together
/// with the promises above less than what closes a connection (max_queued_bytes).
inline constexpr std::size_t max_streams = 64;
inline constexpr std::size_t stream_piece_bytes = 128U << 10U;
/// Credit of one stream.
inline constexpr std::uint64_t max_stream_credit = 1ULL << 40U;
/// Bytes queued for a client that does not read, before its connection is closed: small replies
/// only, beyond those above.
inline constexpr std::size_t max_queued_bytes = 64U << 20U;

inline constexpr std::size_t max_argv = 4096;
inline constexpr std::size_t max_env = 4096;
inline constexpr std::size_t max_toolkits = 16;
/// Output of a command that comes inline in a reply when the request names no limit.
inline constexpr std::uint32_t default_inline_bytes = 1U << 20U;

}  // namespace dsec::proto

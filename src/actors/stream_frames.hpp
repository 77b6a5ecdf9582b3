// The messages of streams: what is asked of a sandbox for the next piece, what becomes of its
// answer, and what the client is told. Pure, any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "actors/stream_table.hpp"
#include "proto/frame.hpp"

namespace dsec::actors {

/// The request for its next piece (readOutput, readFile); output is waited for up to `wait`.
proto::frame piece_request(const stream& s, std::chrono::milliseconds wait);

/// What came of it.
struct stream_piece {
  proto::frame reply;                  // holds the data
  std::uint64_t offset = 0;            // of the data
  std::uint64_t size = 0;              // of the data
  std::optional<std::uint64_t> total;  // of the source, when nothing comes after this
  bool failed = false;                 // `reply` is an error
};
base::result<stream_piece> read_piece(const stream& s, proto::frame reply);

/// The answer to a request about the stream.
proto::frame stream_reply(std::uint64_t id, const stream& s);
/// streamData with the piece, its end if it is the last one.
proto::frame stream_data(const stream& s, const stream_piece& piece);
/// streamData that says that the stream failed.
proto::frame stream_failed(const stream& s, const proto::frame& error_reply);

}  // namespace dsec::actors

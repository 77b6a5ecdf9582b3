// Datagrams of guest/channel.hpp as dsecd writes and reads them. Pure, any thread; what aether
// sends is not trusted: decode() answers errc::protocol for whatever does not have exactly the
// documented form. (Fuzzed.)
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "backends/backend.hpp"
#include "base/result.hpp"
#include "guest/channel.hpp"

namespace dsec::container {

/// Numbering of both directions (channel.hpp): filled in when a datagram leaves.
struct sequence {
  std::uint32_t sent = 0;      // highest number used
  std::uint32_t received = 0;  // highest number seen
};

using frame_bytes = std::vector<std::byte>;

/// An exec datagram; what does not fit goes to `payload`, to be sent as a memory file. Without
/// stdin_data no descriptor for it is expected.
struct exec_frame {
  frame_bytes datagram;
  std::string payload;  // empty: the strings are in the datagram
};
base::result<exec_frame> encode_exec(const backends::exec_spec& spec, std::uint64_t spool_cap);

frame_bytes encode_hello(std::uint32_t last_seq);
frame_bytes encode_plain(guest::msg type);                         // ping, kill_all
frame_bytes encode_id(guest::msg type, std::string_view command);  // kill, query, forget

/// Puts numbers into an encoded datagram. Pings stay unnumbered.
void stamp(std::span<std::byte> datagram, sequence& numbers);

struct frame_started {
  std::string id;
  std::uint64_t start_realtime_ns;
};
struct frame_failed {
  std::string id;
  guest::failure why;
  int sys_errno;
};
struct frame_exited {
  std::string id;
  guest::exited_body body;
};
struct frame_unknown {
  std::string id;
};
struct frame_hello {
  guest::hello_body body;
};
struct frame_pong {};
struct frame_degraded {};

struct incoming {
  guest::header header;
  std::variant<frame_pong, frame_hello, frame_started, frame_failed, frame_exited, frame_unknown,
               frame_degraded>
      body;
};
base::result<incoming> decode(std::span<const std::byte> datagram);

}  // namespace dsec::container

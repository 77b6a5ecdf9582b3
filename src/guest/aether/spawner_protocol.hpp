// What aether and its spawner say to each other over a SOCK_SEQPACKET pair, and what a starting
// command says to aether over its status pipe. Both ends are the same program image, so the layout
// is whatever the compiler makes.
#pragma once

#include "guest/aether/decode.hpp"

namespace dsec::guest::aether {

enum class ask : uint32_t {
  ping = 1,   // answered with tell::pong
  start = 2,  // start_request with its strings; answered by the child, over the status pipe
};

enum class tell : uint32_t {
  ready = 1,  // limits, ids and filter stand
  pong = 2,
  broken = 3,  // descriptors did not arrive (root inside lowered its limits): replace me
};

/// Descriptors of a start, in this order; the last two only when the request says so.
enum start_fd : uint32_t {
  start_stdout,
  start_stderr,
  start_status,
  start_group,
  start_stdin,
  start_payload,
  start_fd_max,
};

inline constexpr int no_slab = -1;

/// Followed by the strings unless they are in the payload.
struct start_request {
  ask what;
  uint32_t kind;  // exec_kind
  int32_t
      slab;  // which slab the child may use while its status pipe is open; no_slab: copy the memory
  uint32_t argc, envc, strings_length;
  uint32_t input;    // 1: start_stdin is there; else nothing is to be read
  uint32_t payload;  // 1: strings are in the descriptor start_payload
  uint32_t mode;
  uint64_t offset, length;
};

/// One message on the status pipe. The child first says its pid; then nothing more (the pipe
/// closes: the program runs) or one failure.
struct status_record {
  uint32_t failure;  // 0: `value` is the pid; else enum failure, and `value` is the errno
  int32_t value;
};

}  // namespace dsec::guest::aether

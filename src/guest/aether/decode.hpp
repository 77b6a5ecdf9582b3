// Checks of what comes in over the channel, and the cutting of a command's strings. Pure and
// without system calls: compiled into aether, the unit tests and the fuzz target `aether_channel`.
// Everything answers by value; bytes are copied out of the datagram before they are looked at.
#pragma once

#include "guest/channel.hpp"

namespace dsec::guest {

inline constexpr uint32_t max_inline_strings =
    max_datagram - static_cast<uint32_t>(sizeof(header)) - static_cast<uint32_t>(sizeof(exec_body));
inline constexpr uint32_t max_strings = 8U << 20U;  // in a payload memfd; execve takes no more
inline constexpr uint64_t min_spool_cap = 4096;
inline constexpr uint64_t max_spool_cap = uint64_t{1} << 40U;

inline void copy_bytes(void* to, const void* from, size_t n) {
  __builtin_memcpy(to, from, n);
}

/// The header of a datagram of `size` bytes; false when the datagram cannot be one of ours.
inline bool decode_header(const void* datagram, size_t size, header& out) {
  if (size < sizeof(header) || size > max_datagram) return false;
  copy_bytes(&out, datagram, sizeof out);
  return out.length == size && out.reserved == 0;
}

/// The body that follows the header, when the datagram has exactly that length.
template <class body>
bool decode_body(const void* datagram, size_t size, body& out) {
  if (size != sizeof(header) + sizeof(body)) return false;
  copy_bytes(&out, static_cast<const char*>(datagram) + sizeof(header), sizeof out);
  return true;
}

/// Printable, not empty, zero-padded to the end.
inline bool valid_id(const char (&id)[max_command_id]) {
  uint32_t n = 0;
  while (n < max_command_id && id[n] != '\0') {
    if (id[n] <= ' ' || id[n] > '~') return false;
    ++n;
  }
  if (n == 0) return false;
  for (; n < max_command_id; ++n) {
    if (id[n] != '\0') return false;
  }
  return true;
}

enum class exec_check : uint32_t {
  ok,
  nameless,     // not even an id to answer with: ignored
  bad_request,  // answered with failed{bad_request}
};

/// Everything about an exec that can be judged without its strings. `fds` came with the datagram.
inline exec_check decode_exec(const void* datagram, size_t size, size_t fds, exec_body& out) {
  if (size < sizeof(header) + sizeof(exec_body)) return exec_check::nameless;
  copy_bytes(&out, static_cast<const char*>(datagram) + sizeof(header), sizeof out);
  if (!valid_id(out.id)) return exec_check::nameless;

  const size_t rest = size - sizeof(header) - sizeof(exec_body);
  const bool kind_known = out.kind <= static_cast<uint32_t>(exec_kind::write_file);
  const bool argc_right =
      out.kind == static_cast<uint32_t>(exec_kind::program) ? out.argc >= 1 : out.argc == 1;
  const bool counts = uint64_t{out.argc} + out.envc + 2 <= out.strings_length;
  const bool cap =
      out.spool_cap >= min_spool_cap && out.spool_cap <= max_spool_cap && out.spool_cap % 2 == 0;
  const bool strings = out.payload_fd == 0 ? out.strings_length == rest
                                           : rest == 0 && out.strings_length <= max_strings;
  const bool range = out.offset <= INT64_MAX && out.length <= INT64_MAX - out.offset;
  const bool good = kind_known && argc_right && counts && cap && strings && range &&
                    out.flags <= exec_no_input && out.reserved == 0 && out.payload_fd <= 1 &&
                    fds == 3 - out.flags + out.payload_fd && (out.mode & ~07777U) == 0;
  return good ? exec_check::ok : exec_check::bad_request;
}

/// Where a command's strings stand after cutting.
struct command_strings {
  char** argv;  // argc pointers and a null
  char** envp;  // envc pointers and two nulls: room for one more variable
  char* cwd;
  char* user;
};

/// Number of pointers that cut_strings writes.
constexpr uint64_t pointers_needed(uint32_t argc, uint32_t envc) {
  return uint64_t{argc} + 1 + envc + 2;
}

/// Cuts `length` bytes into argv, envp, cwd and user. False when they are not exactly that many
/// NUL-terminated strings. `pointers` has room for pointers_needed(argc, envc).
inline bool cut_strings(char* strings, uint32_t length, uint32_t argc, uint32_t envc,
                        char** pointers, command_strings& out) {
  const char* const end = strings + length;
  char* at = strings;
  const auto next = [&]() -> char* {
    char* start = at;
    while (at != end && *at != '\0') ++at;
    if (at == end) return nullptr;
    ++at;
    return start;
  };
  out.argv = pointers;
  out.envp = pointers + argc + 1;
  for (uint32_t i = 0; i < argc; ++i) {
    out.argv[i] = next();
    if (out.argv[i] == nullptr) return false;
  }
  out.argv[argc] = nullptr;
  for (uint32_t i = 0; i < envc; ++i) {
    out.envp[i] = next();
    if (out.envp[i] == nullptr) return false;
  }
  out.envp[envc] = nullptr;
  out.envp[envc + 1] = nullptr;
  out.cwd = next();
  out.user = out.cwd == nullptr ? nullptr : next();
  return out.user != nullptr && at == end;
}

}  // namespace dsec::guest

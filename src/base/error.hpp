// Error values: one documented code each, never renumbered (they travel on the wire and become exit
// codes). Any thread. `message` is a lower-case human sentence that names the object and, where
// there is one, the remedy; `sys_errno` is the errno behind it or 0.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dsec::base {

enum class errc : std::uint16_t {
  ok = 0,
  internal = 1,           // a bug of ours, or an unexpected answer of the kernel
  invalid_argument = 2,   // the request itself is wrong; sending it again cannot help
  not_found = 3,          // sandbox, command, image or file that does not exist
  already_exists = 4,     // the name is taken
  conflict = 5,           // same idempotency key with another body
  unauthenticated = 6,    // no or unknown API key
  permission_denied = 7,  // known, but not allowed; also file permissions inside a sandbox
  capacity = 8,  // admission refused until the deadline; the message names the scarce resource
  deadline_exceeded = 9,  // the request's own deadline passed
  unavailable = 10,       // infrastructure is down or restarting; retry
  unsupported = 11,       // this host, backend or version cannot do it
  wrong_phase = 12,       // illegal in the sandbox's present phase
  sandbox_failed = 13,    // the sandbox died; the message gives the cause
  too_large = 14,         // a limit of the protocol or of a file transfer
  no_shell = 15,          // run_shell in an image that has neither /bin/bash nor /bin/sh
  exec_failed =
      16,          // the program could not be started (not found, not executable, bad cwd or user)
  io = 17,         // disk full and other I/O errors of the host
  protocol = 18,   // malformed frame or message
  corrupt = 19,    // damaged store, image or record
  cancelled = 20,  // given up because the other side went away or the daemon is stopping
};

std::string_view to_string(errc code);
/// The code of that name, if there is one.
std::optional<errc> parse_errc(std::string_view name);

/// Whether sending the same request again later can succeed.
bool retryable(errc code);

/// Exit code of the command line tools for this error (docs/errors.md).
int exit_code(errc code);

/// The status of an HTTP answer that is this error (docs/errors.md).
unsigned http_status(errc code);

struct error {
  errc code = errc::internal;
  std::string message;
  int sys_errno = 0;
  std::string object{};  // id or name of what it is about, for programs; may be empty

  /// "message: strerror"
  [[nodiscard]] std::string sentence() const;
  /// "message: strerror (code)"
  [[nodiscard]] std::string to_string() const;
};

/// An error of the calling thread's errno (or `number`), mapped to the nearest code.
error from_errno(std::string message, int number);
error from_errno(std::string message);

}  // namespace dsec::base

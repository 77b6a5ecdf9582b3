#include "base/error.hpp"

#include <array>
#include <cerrno>
#include <cstring>

namespace dsec::base {
namespace {

struct row {
  errc code;
  std::string_view name;
  bool retryable;
  int exit_code;
  unsigned http_status;
};

// Exit codes 64.. follow sysexits(3) where one fits.
constexpr std::array rows{
    row{errc::ok, "ok", false, 0, 200},
    row{errc::internal, "internal", false, 70, 500},
    row{errc::invalid_argument, "invalid_argument", false, 64, 400},
    row{errc::not_found, "not_found", false, 66, 404},
    row{errc::already_exists, "already_exists", false, 73, 409},
    row{errc::conflict, "conflict", false, 73, 409},
    row{errc::unauthenticated, "unauthenticated", false, 77, 401},
    row{errc::permission_denied, "permission_denied", false, 77, 403},
    row{errc::capacity, "capacity", true, 75, 503},
    row{errc::deadline_exceeded, "deadline_exceeded", true, 75, 504},
    row{errc::unavailable, "unavailable", true, 69, 503},
    row{errc::unsupported, "unsupported", false, 69, 501},
    row{errc::wrong_phase, "wrong_phase", false, 65, 409},
    row{errc::sandbox_failed, "sandbox_failed", false, 76, 410},
    row{errc::too_large, "too_large", false, 65, 413},
    row{errc::no_shell, "no_shell", false, 72, 422},
    row{errc::exec_failed, "exec_failed", false, 72, 422},
    row{errc::io, "io", true, 74, 507},
    row{errc::protocol, "protocol", false, 76, 400},
    row{errc::corrupt, "corrupt", false, 74, 500},
    row{errc::cancelled, "cancelled", true, 75, 503},
};

const row& find(errc code) {
  for (const auto& r : rows) {
    if (r.code == code) return r;
  }
  return rows[1];
}

errc code_of(int number) {
  switch (number) {
    case ENOENT:
      return errc::not_found;
    case EEXIST:
      return errc::already_exists;
    case EACCES:
    case EPERM:
      return errc::permission_denied;
    case EINVAL:
    case ENAMETOOLONG:
      return errc::invalid_argument;
    case ENOSYS:
    case EOPNOTSUPP:
      return errc::unsupported;
    case ENOSPC:
    case EDQUOT:
    case EIO:
    case EROFS:
      return errc::io;
    case EMFILE:
    case ENFILE:
      return errc::capacity;
    case ETIMEDOUT:
      return errc::deadline_exceeded;
    default:
      return errc::internal;
  }
}

}  // namespace

std::string_view to_string(errc code) {
  return find(code).name;
}
std::optional<errc> parse_errc(std::string_view name) {
  for (const auto& r : rows) {
    if (r.name == name) return r.code;
  }
  return std::nullopt;
}
bool retryable(errc code) {
  return find(code).retryable;
}
int exit_code(errc code) {
  return find(code).exit_code;
}

unsigned http_status(errc code) {
  return find(code).http_status;
}

std::string error::sentence() const {
  std::string text = message;
  if (sys_errno != 0) {
    std::array<char, 128> buffer{};
    text += ": ";
    text += ::strerror_r(sys_errno, buffer.data(), buffer.size());
  }
  return text;
}

std::string error::to_string() const {
  return sentence() + " (" + std::string(dsec::base::to_string(code)) + ")";
}

error from_errno(std::string message, int number) {
  return {code_of(number), std::move(message), number};
}

error from_errno(std::string message) {
  return from_errno(std::move(message), errno);
}

}  // namespace dsec::base

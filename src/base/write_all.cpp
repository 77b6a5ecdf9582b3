#include "base/write_all.hpp"

#include <unistd.h>

#include <cerrno>
#include <string>

namespace dsec::base {

result<void> write_all(int fd, std::string_view bytes, std::string_view name) {
  while (!bytes.empty()) {
    const auto n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("cannot write '" + std::string(name) + "'");
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

result<void> write_all(int fd, std::span<const std::byte> bytes, std::string_view name) {
  return write_all(fd, {reinterpret_cast<const char*>(bytes.data()), bytes.size()}, name);
}

}  // namespace dsec::base

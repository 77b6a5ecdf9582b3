// SOCK_SEQPACKET unix sockets whose datagrams carry descriptors (SCM_RIGHTS, unix(7)). Any thread;
// one datagram per call, never blocking. A peer that is gone is errc::unavailable; a truncated
// datagram is errc::protocol.
#pragma once

#include <sys/socket.h>

#include <cstddef>
#include <filesystem>
#include <span>
#include <utility>
#include <vector>

#include "backends/sys/unique_fd.hpp"
#include "base/result.hpp"

namespace dsec::sys {

/// The most descriptors in one datagram, either way.
inline constexpr std::size_t max_datagram_fds = 32;

using bytes = std::span<const std::byte>;

template <class T>
bytes bytes_of(const T& object) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::as_bytes(std::span(&object, 1));
}

/// Sends one datagram, whole or not at all. False: the socket's buffer is full.
base::result<bool> send_datagram(int socket, bytes data, std::span<const int> fds = {});

enum class receive_state { data, nothing, closed };

struct received {
  receive_state state = receive_state::nothing;
  std::size_t size = 0;  // of the datagram, in the caller's buffer
  std::vector<unique_fd> fds;
};
base::result<received> receive_datagram(int socket, std::span<std::byte> buffer);

/// Two connected non-blocking ends.
base::result<std::pair<unique_fd, unique_fd>> datagram_pair();

/// Connects to a listening socket, reached through its directory's descriptor so that the path may
/// be longer than sun_path. errno ENOENT or ECONNREFUSED: nobody listens.
base::result<unique_fd> connect_datagram(const std::filesystem::path& path);

}  // namespace dsec::sys

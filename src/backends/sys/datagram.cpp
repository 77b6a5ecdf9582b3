#include "backends/sys/datagram.hpp"

#include <fcntl.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "backends/sys/file.hpp"

namespace dsec::sys {
namespace {

using base::fail;
using base::fail_errno;
using base::result;

constexpr std::size_t control_bytes = CMSG_SPACE(max_datagram_fds * sizeof(int));

std::vector<unique_fd> take_fds(msghdr& message) {
  std::vector<unique_fd> fds;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const auto count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

result<bool> send_datagram(int socket, bytes data, std::span<const int> fds) {
  iovec part{const_cast<std::byte*>(data.data()), data.size()};
  alignas(cmsghdr) char control[control_bytes] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fds.size() > max_datagram_fds)
    return fail(base::errc::internal, "too many descriptors for one datagram");
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  while (::sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return false;
    if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
      return fail({base::errc::unavailable, "the other end of the socket is closed", errno});
    return fail_errno("cannot send a datagram");
  }
  return true;
}

result<received> receive_datagram(int socket, std::span<std::byte> buffer) {
  iovec part{buffer.data(), buffer.size()};
  alignas(cmsghdr) char control[control_bytes];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t n = 0;
  do {
    n = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (n < 0 && errno == EINTR);
  if (n < 0 && errno == EAGAIN) return received{};
  if (n == 0 || (n < 0 && errno == ECONNRESET)) return received{receive_state::closed, 0, {}};
  if (n < 0) return fail_errno("cannot receive a datagram");
  auto fds = take_fds(message);  // owned at once, so that none leaks on the error below
  if ((message.msg_flags & MSG_CTRUNC) != 0)
    return fail({base::errc::protocol,
                 "descriptors of a datagram could not be received: are there too many open files?",
                 0});
  if ((message.msg_flags & MSG_TRUNC) != 0)
    return fail(base::errc::protocol, "a datagram is larger than the protocol allows");
  return received{receive_state::data, static_cast<std::size_t>(n), std::move(fds)};
}

result<std::pair<unique_fd, unique_fd>> datagram_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return fail_errno("cannot make a socket pair");
  return std::pair{unique_fd(ends[0]), unique_fd(ends[1])};
}

result<unique_fd> connect_datagram(const std::filesystem::path& path) {
  DSEC_TRY(const auto directory, open_at(AT_FDCWD, path.parent_path(), O_PATH | O_DIRECTORY));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const auto name =
      "/proc/self/fd/" + std::to_string(directory.get()) + "/" + path.filename().string();
  if (name.size() >= sizeof address.sun_path)
    return fail(base::errc::invalid_argument, "socket name '" + path.string() + "' is too long");
  std::memcpy(address.sun_path, name.c_str(), name.size() + 1);
  unique_fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return fail_errno("cannot make a socket");
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return fail_errno("cannot connect to '" + path.string() + "'");
  return socket;
}

}  // namespace dsec::sys

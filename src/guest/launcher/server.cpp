#include "guest/launcher/server.hpp"

#include <poll.h>
#include <string.h>
#include <sys/socket.h>

namespace dsec::launcher {
namespace {

constexpr int patience_ms = 5000;
constexpr int send_buffer = 1 << 20;
constexpr std::size_t max_reply_fds = 2;

/// Takes over every descriptor of a message, more than fit a request are closed.
void collect(msghdr& message, request& into) {
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int number = -1;
      memcpy(&number, CMSG_DATA(c) + i * sizeof(int), sizeof number);
      fd received(number);
      if (into.fd_count < into.fds.size()) into.fds[into.fd_count++] = std::move(received);
    }
  }
}

}  // namespace

bool server::accept() {
  fd connection(
      sys::call(SYS_accept4, listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!connection.valid()) return false;
  ucred peer{};
  socklen_t length = sizeof peer;
  if (sys::call(SYS_getsockopt, connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) < 0 ||
      peer.uid != 0)
    return false;
  sys::call(SYS_setsockopt, connection.get(), SOL_SOCKET, SO_SNDBUF, &send_buffer,
            sizeof send_buffer);
  if (connection.keep() < 0) return false;
  connection_ = std::move(connection);
  return true;
}

bool server::receive(request& into) {
  alignas(cmsghdr) char control[CMSG_SPACE(max_request_fds * sizeof(int))] = {};
  iovec data{into.bytes.data(), into.bytes.size()};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const long n =
      sys::call(SYS_recvmsg, connection_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  if (n == -EAGAIN || n == -EINTR) return false;
  if (n > 0) collect(message, into);
  if (n < static_cast<long>(sizeof(guest::launch_header)) ||
      (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    disconnect();  // gone, or speaks something else
    return false;
  }
  into.length = static_cast<std::size_t>(n);
  return true;
}

bool server::wait_writable() const {
  pollfd both[2] = {{connection_.get(), POLLOUT, 0}, {listening_.get(), POLLIN, 0}};
  const long ready = sys::call(SYS_poll, both, 2, patience_ms);
  return ready == -EINTR || (ready > 0 && both[1].revents == 0);
}

void server::send(const void* datagram, std::size_t length, std::initializer_list<int> fds) {
  alignas(cmsghdr) char control[CMSG_SPACE(max_reply_fds * sizeof(int))] = {};
  iovec data{const_cast<void*>(datagram), length};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fds.size() > 0) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    memcpy(CMSG_DATA(c), fds.begin(), fds.size() * sizeof(int));
  }
  while (connection_.valid()) {
    const long n = sys::call(SYS_sendmsg, connection_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) return;
    if ((n != -EAGAIN && n != -EINTR) || !wait_writable()) disconnect();
  }
}

}  // namespace dsec::launcher

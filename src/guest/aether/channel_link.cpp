// Receiving, numbering, repeating (channel_link.hpp).
#include "guest/aether/channel_link.hpp"

namespace dsec::guest::aether {
namespace {

alignas(16) char incoming[max_datagram];

}  // namespace

channel_link::got channel_link::receive(datagram& out, bool wait) {
  sys::rights<max_channel_fds> rights;
  struct iovec part = {incoming, sizeof incoming};
  sys::message m = {};
  m.parts = &part;
  m.part_count = 1;
  m.control = &rights;
  m.control_length = sizeof rights;
  const long n = sys::receive(fd_channel, &m, wait ? 0 : sys::msg_dontwait);
  if (n == -EAGAIN || n == -EINTR) return got::nothing;
  if (n <= 0) return got::closed;
  out.fd_count = rights.received(m.control_length);
  for (size_t i = 0; i < max_channel_fds; ++i) {
    out.fds[i] = unique_fd(i < out.fd_count ? rights.fds[i] : -1);
  }
  out.bytes = incoming;
  out.size = static_cast<size_t>(n);
  out.fds_lost = (m.flags & sys::msg_ctrunc) != 0;
  const bool whole = (m.flags & sys::msg_trunc) == 0;
  if (!whole || !decode_header(incoming, out.size, out.head)) return got::malformed;
  return got::datagram;
}

uint32_t channel_link::post_bytes(msg type, const void* body, size_t n, uint32_t reserve) {
  if (count_ + reserve >= capacity) {
    send_now(type, 0, body, n);
    return 0;
  }
  kept& k = at(count_++);
  k.type = type;
  k.length = static_cast<uint16_t>(n);
  k.seq = ++last_seq_;
  copy_bytes(k.body, body, n);
  return k.seq;
}

bool channel_link::send_now(msg type, uint32_t seq, const void* body, size_t n) {
  const header head = {.type = static_cast<uint16_t>(type),
                       .reserved = 0,
                       .length = static_cast<uint32_t>(sizeof(header) + n),
                       .seq = seq,
                       .ack = received_};
  struct iovec parts[2] = {{const_cast<header*>(&head), sizeof head}, {const_cast<void*>(body), n}};
  sys::message m = {};
  m.parts = parts;
  m.part_count = n == 0 ? 1 : 2;
  // Any failure but "full" shows again as the end of the channel when it is read.
  return sys::send(fd_channel, &m) >= 0;
}

void channel_link::say_hello(uint32_t commands) {
  hello_commands_ = commands;
  hello_due_ = true;
  flush();
}

bool channel_link::send_hello() {
  const hello_body hello = {
      .version = channel_version, .last_seq = received_, .commands = hello_commands_};
  return send_now(msg::hello, 0, &hello, sizeof hello);
}

void channel_link::acknowledge(uint32_t seq) {
  while (count_ > 0 && at(0).seq <= seq && seq <= last_seq_) {
    first_ = (first_ + 1) % capacity;
    --count_;
    if (unsent_ > 0) --unsent_;
  }
  if (count_ == 0) first_ = 0;  // stay on few pages
}

void channel_link::restart(uint32_t last_seq, uint32_t its_seq) {
  received_ = its_seq;
  acknowledge(last_seq);
  unsent_ = 0;
}

void channel_link::flush() {
  if (hello_due_) {
    if (!send_hello()) return;
    hello_due_ = false;
  }
  while (unsent_ < count_) {
    const kept& k = at(unsent_);
    if (!send_now(k.type, k.seq, k.body, k.length)) return;
    ++unsent_;
  }
}

}  // namespace dsec::guest::aether

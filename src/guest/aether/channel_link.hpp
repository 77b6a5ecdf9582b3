// aether's end of the channel (guest/channel.hpp): receives datagrams with their descriptors,
// numbers and keeps what must not be lost until it is acknowledged, and sends in order whenever the
// socket takes more. Never waits. Owned by the proxy; one thread.
#pragma once

#include "guest/aether/decode.hpp"
#include "guest/aether/fd.hpp"

namespace dsec::guest::aether {

inline constexpr size_t max_channel_fds = 4;

struct datagram {
  header head;
  const char* bytes = nullptr;  // whole, header included; valid until the next receive
  size_t size = 0;
  unique_fd fds[max_channel_fds];
  size_t fd_count = 0;
  bool fds_lost = false;  // it came with more: too many, or this process may open no more
};

class channel_link {
 public:
  static constexpr uint32_t capacity = 2048;  // kept messages

  enum class got { datagram, nothing, malformed, closed };
  static got receive(datagram& out, bool wait = false);

  /// Queues a numbered message, kept until acknowledged; returns its number. Without room beyond
  /// the `reserve` it is tried once, unnumbered, and 0 returned: this befalls a dsecd that
  /// acknowledges nothing.
  template <class body>
  uint32_t post(msg type, const body& b, uint32_t reserve = 0) {
    static_assert(sizeof(body) <= max_body);
    return post_bytes(type, &b, sizeof b, reserve);
  }
  uint32_t post(msg type, uint32_t reserve) { return post_bytes(type, nullptr, 0, reserve); }
  /// hello and pong: not numbered, not repeated. A hello that does not fit now is sent later.
  void say_hello(uint32_t commands);
  void say_pong() { send_now(msg::pong, 0, nullptr, 0); }

  void acknowledge(uint32_t seq);
  /// A new dsecd that has everything up to `last_seq`: its own numbers start again, the rest of
  /// ours is repeated.
  void restart(uint32_t last_seq, uint32_t its_seq);
  void note_received(uint32_t seq) { received_ = seq != 0 ? seq : received_; }

  [[nodiscard]] uint32_t room() const { return capacity - count_; }
  [[nodiscard]] uint32_t acknowledged() const { return last_seq_ - count_; }

  /// Sends what is queued. wants_write() afterwards: the socket is full.
  void flush();
  [[nodiscard]] bool wants_write() const { return unsent_ < count_ || hello_due_; }

 private:
  static constexpr size_t max_body = 104;
  struct kept {
    msg type;
    uint16_t length;
    uint32_t seq;
    char body[max_body];
  };

  uint32_t post_bytes(msg type, const void* body, size_t n, uint32_t reserve);
  bool send_now(msg type, uint32_t seq, const void* body, size_t n);
  bool send_hello();
  kept& at(uint32_t i) { return ring_[(first_ + i) % capacity]; }

  uint32_t first_ = 0, count_ = 0;  // of the kept ones
  uint32_t unsent_ = 0;  // index, from first_, of the first that was not sent since the last hello
  uint32_t last_seq_ = 0;
  uint32_t received_ = 0;
  uint32_t hello_commands_ = 0;
  bool hello_due_ = false;
  kept ring_[capacity] = {};
};

}  // namespace dsec::guest::aether

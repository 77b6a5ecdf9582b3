// epoll with tokens of ours. One per aether, owned by the proxy.
#pragma once

#include <linux/eventpoll.h>

#include "guest/aether/fd.hpp"

namespace dsec::guest::aether {

enum class source : uint32_t { channel, spawner, signals, status, output };

struct token {
  source from;
  uint16_t index = 0;   // of the live command
  uint16_t stream = 0;  // of source::output
};

class poller {
 public:
  static constexpr int batch = 64;

  bool open() {
    epoll_ = unique_fd(sys::call(__NR_epoll_create1, EPOLL_CLOEXEC));
    return static_cast<bool>(epoll_);
  }
  long add(int fd, token t, uint32_t events) { return control(EPOLL_CTL_ADD, fd, t, events); }
  long change(int fd, token t, uint32_t events) { return control(EPOLL_CTL_MOD, fd, t, events); }

  /// Number of events, or -errno. `timeout_ms` -1 waits for ever.
  long wait(epoll_event (&events)[batch], int timeout_ms) {
    return sys::call(__NR_epoll_pwait, epoll_.get(), events, batch, timeout_ms, nullptr, 8);
  }
  static token token_of(const epoll_event& e) {
    return {static_cast<source>(e.data >> 32U), static_cast<uint16_t>(e.data >> 16U),
            static_cast<uint16_t>(e.data)};
  }

 private:
  long control(int operation, int fd, token t, uint32_t events) {
    epoll_event e = {};
    e.events = events;
    e.data =
        static_cast<uint64_t>(t.from) << 32U | static_cast<uint64_t>(t.index) << 16U | t.stream;
    return sys::call(__NR_epoll_ctl, epoll_.get(), operation, fd, &e);
  }

  unique_fd epoll_;
};

}  // namespace dsec::guest::aether

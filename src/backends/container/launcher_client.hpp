// dsecd's connection to the launcher (guest/launch.hpp): requests with a time limit from any
// thread, several at a time; replies and events are read on the event loop's thread. Owned by the
// backend. When the launcher dies every waiting and later request fails with errc::unavailable and
// `down` runs once.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/sys/datagram.hpp"
#include "backends/sys/event_loop.hpp"
#include "backends/sys/pidfd.hpp"
#include "guest/launch.hpp"

namespace dsec::container {

struct launcher_events {
  std::function<void(std::string sandbox, int status)> exited;  // an aether was reaped
  std::function<void()> down;                                   // the launcher itself is gone
};

class launcher_client {
 public:
  /// Takes over a connected socket and greets. errc::unsupported when the versions differ.
  static base::result<std::unique_ptr<launcher_client>> open(sys::event_loop& loop,
                                                             sys::unique_fd socket,
                                                             launcher_events events);
  ~launcher_client();
  launcher_client(const launcher_client&) = delete;
  launcher_client& operator=(const launcher_client&) = delete;

  base::result<void> attach_layer(const std::string& digest, int blob);
  base::result<void> detach_layer(const std::string& digest);
  base::result<void> make_slot(std::uint32_t slot, std::uint32_t uid_base,
                               std::uint32_t aether_uid);
  base::result<void> drop_slot(std::uint32_t slot);

  struct created {
    sys::unique_fd channel, pidfd;
  };
  base::result<created> create(guest::launch_create request, std::span<const int> fds);
  base::result<void> release(const std::string& sandbox);

  struct listed {
    std::string sandbox;
    std::uint32_t slot = 0;
  };
  base::result<std::vector<listed>> list();
  /// Asks it to exit and waits until it has.
  base::result<void> shutdown();

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] std::uint32_t sandboxes() const { return sandboxes_; }
  [[nodiscard]] bool is_down();

 private:
  struct reply {
    std::vector<std::byte> data;
    std::vector<sys::unique_fd> fds;
  };
  struct waiting {
    std::vector<reply> replies;  // several for list
    bool done = false;
  };
  launcher_client(sys::event_loop& loop, sys::unique_fd socket, launcher_events events);
  base::result<void> greet();
  void on_events();
  void take(std::span<const std::byte> datagram, std::vector<sys::unique_fd> fds);
  void take_event(std::span<const std::byte> datagram);
  void went_down();

  /// Numbers and sends a request, waits for its last reply.
  base::result<std::vector<reply>> call(std::span<std::byte> request, std::span<const int> fds,
                                        const char* what);
  template <class Request>
  base::result<std::vector<reply>> ask(guest::launch type, Request& request,
                                       std::span<const int> fds, const char* what) {
    request.h.type = static_cast<std::uint32_t>(type);
    return call(std::as_writable_bytes(std::span(&request, 1)), fds, what);
  }
  template <class Request>
  base::result<void> order(guest::launch type, Request& request, std::span<const int> fds,
                           const char* what);
  static base::result<void> outcome(const reply& r, const char* what);

  sys::event_loop& loop_;
  sys::unique_fd socket_, pidfd_;
  launcher_events events_;
  sys::event_loop::token token_ = 0;
  pid_t pid_ = 0;
  std::uint32_t sandboxes_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t next_ = 1;
  std::map<std::uint32_t, std::shared_ptr<waiting>> waiting_;
  bool down_ = false;
};

}  // namespace dsec::container

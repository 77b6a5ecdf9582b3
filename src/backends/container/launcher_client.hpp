// dsecd's connection to the launcher (guest/launch.hpp): requests with a time limit from any
// thread, several at a time; replies and events are read on the event loop's thread. Owned by the
// backend. When the launcher dies, hangs up or lets a request wait for too long (then it is killed,
// unless it is waited for with patience) every waiting and later request fails with
// errc::unavailable and `down` runs once.
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
#include <optional>
#include <string>
#include <vector>

#include "backends/sys/datagram.hpp"
#include "backends/sys/event_loop.hpp"
#include "backends/sys/pidfd.hpp"
#include "guest/launch.hpp"

namespace dsec::container {

struct launcher_events {
  std::function<void(std::string sandbox, int status)> exited;  // an aether was reaped
  std::function<void()> down;  // the launcher itself is gone; not for one that never greeted
};

/// A sandbox that the launcher holds.
struct listed_sandbox {
  std::string id;
  std::uint32_t slot = 0;
  bool ended = false;  // its aether was reaped, or reaped by another process
  int status = 0;      // of aether then, as of wait(2); -1: unknown
  sys::unique_fd channel, pidfd;
};

/// Asked every half second while a launcher does not answer, whether to go on waiting.
using launcher_patience = std::function<bool()>;

class launcher_client {
 public:
  /// Takes over a connected socket and greets. With `patience` the launcher is not killed for not
  /// answering, until settle(). errc::unsupported: it speaks none of the versions `spoken`.
  static base::result<std::unique_ptr<launcher_client>> open(
      sys::event_loop& loop, sys::unique_fd socket, launcher_events events,
      launcher_patience patience = nullptr, guest::versions spoken = guest::launch_versions);
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
  /// Hands over a sandbox of a launcher that died; `fds`: channel end, pidfd.
  base::result<void> adopt(guest::launch_adopt request, std::span<const int> fds);

  /// From now on requests have their time limit. Before any other thread makes one.
  void settle() { patience_ = nullptr; }

  /// All sandboxes that are not released yet.
  base::result<std::vector<listed_sandbox>> list();

  /// Asks it to exit and waits until it has.
  base::result<void> shutdown();

  /// SIGKILL; true when the process has ended soon after. What it was asked to do it will not do
  /// any more.
  bool kill();

  [[nodiscard]] bool is_down();
  [[nodiscard]] pid_t pid() const { return pid_; }
  /// The mount namespace the layers live in, as told in its hello; can be taken once.
  sys::unique_fd take_layers_namespace() { return std::move(layers_ns_); }

 private:
  struct reply {
    std::vector<std::byte> data;
    std::vector<sys::unique_fd> fds;
  };
  struct waiter {
    std::vector<reply> listed;    // come first, when a list is asked for
    std::optional<reply> answer;  // comes last
  };
  launcher_client(sys::event_loop& loop, sys::unique_fd socket, launcher_events events,
                  launcher_patience patience);
  base::result<void> greet(guest::versions spoken);
  void on_events();
  void take(std::span<const std::byte> datagram, std::vector<sys::unique_fd> fds);
  void take_event(std::span<const std::byte> datagram);
  void went_down(const base::error& why);

  /// Numbers and sends a request, waits for its reply.
  base::result<waiter> call(std::span<std::byte> request, std::span<const int> fds,
                            const char* what);
  /// False: it took too long, or patience is over.
  bool wait(std::unique_lock<std::mutex>& lock, const waiter& mine);
  template <class Request>
  base::result<waiter> ask_all(guest::launch type, Request& request, std::span<const int> fds,
                               const char* what) {
    request.h.type = static_cast<std::uint32_t>(type);
    return call(std::as_writable_bytes(std::span(&request, 1)), fds, what);
  }
  template <class Request>
  base::result<reply> ask(guest::launch type, Request& request, std::span<const int> fds,
                          const char* what) {
    return ask_all(type, request, fds, what).map([](waiter&& w) { return *std::move(w.answer); });
  }
  template <class Request>
  base::result<void> order(guest::launch type, Request& request, std::span<const int> fds,
                           const char* what);
  static base::result<void> outcome(const reply& r, const char* what);

  sys::event_loop& loop_;
  sys::unique_fd socket_, layers_ns_;
  sys::unique_fd pidfd_;  // set by greet(), constant afterwards
  pid_t pid_ = 0;         // likewise
  launcher_events events_;
  launcher_patience patience_;
  sys::event_loop::token token_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t next_ = 1;
  std::map<std::uint32_t, waiter*> waiting_;  // places on the callers' stacks
  bool greeted_ = false, down_ = false;
  base::error why_down_;
};

}  // namespace dsec::container

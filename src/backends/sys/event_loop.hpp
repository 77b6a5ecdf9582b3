// One thread waiting in epoll(7) for many descriptors; every aether channel, pidfd and the
// launcher's socket of a backend share one. Callbacks run on that thread, must not block, and may
// watch and unwatch (also themselves).
#pragma once

#include <sys/epoll.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "backends/sys/unique_fd.hpp"
#include "base/result.hpp"

namespace dsec::sys {

class event_loop {
 public:
  using callback = std::function<void(std::uint32_t events)>;
  using token = std::uint64_t;

  /// `name` becomes the thread's name (15 characters at most).
  static base::result<std::unique_ptr<event_loop>> start(const std::string& name);
  ~event_loop();
  event_loop(const event_loop&) = delete;
  event_loop& operator=(const event_loop&) = delete;

  /// The descriptor stays the caller's and must stay open until unwatch().
  base::result<token> watch(int fd, std::uint32_t events, callback run);
  base::result<void> change(token t, int fd, std::uint32_t events);
  /// When it returns the callback does not run and will not run again (unless called from inside of
  /// it). May be repeated, also for a token that was never given out.
  void unwatch(token t, int fd);

 private:
  event_loop(unique_fd epoll, unique_fd wake);
  void run();
  void dispatch(token t, std::uint32_t events);

  unique_fd epoll_, wake_;
  std::mutex mutex_;
  std::condition_variable idle_;
  std::unordered_map<token, std::shared_ptr<callback>> callbacks_;
  static constexpr token none = 0;  // wake_, which has no callback
  token next_ = none + 1;
  token running_ = none;  // whose callback runs now
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace dsec::sys

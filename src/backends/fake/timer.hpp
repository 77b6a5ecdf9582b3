// Calls functions later, on one thread that exists once the first one is wanted. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace dsec::fake {

class timer {
 public:
  timer() = default;
  /// Drops what is not due yet.
  ~timer();
  timer(const timer&) = delete;
  timer& operator=(const timer&) = delete;

  void after(std::chrono::milliseconds delay, std::function<void()> call);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::multimap<std::chrono::steady_clock::time_point, std::function<void()>> due_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace dsec::fake

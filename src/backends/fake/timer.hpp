// Calls functions later, on one thread that exists once the first one is wanted. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

namespace dsec::fake {

class timer {
 public:
  timer();
  /// Drops what is not due yet and waits for a call under way, unless that is what destroys it.
  ~timer();
  timer(const timer&) = delete;
  timer& operator=(const timer&) = delete;

  void after(std::chrono::milliseconds delay, std::function<void()> call);

 private:
  struct schedule;

  std::shared_ptr<schedule> schedule_;
  std::mutex mutex_;
  std::thread thread_;
};

}  // namespace dsec::fake

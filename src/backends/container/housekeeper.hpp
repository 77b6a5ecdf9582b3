// One background thread for work that may block but that nobody waits for, such as topping up
// slots. Owned by the backend. Thread-safe. Jobs run in order; those posted after stop() are
// dropped.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <thread>

namespace dsec::container {

class housekeeper {
 public:
  /// `nice`: added to the thread's niceness, so that deleting files does not slow down creates.
  housekeeper(const char* name, int nice);
  ~housekeeper();
  housekeeper(const housekeeper&) = delete;
  housekeeper& operator=(const housekeeper&) = delete;

  void post(std::function<void()> job);
  /// The same, but not before `delay` is over.
  void post_later(std::chrono::milliseconds delay, std::function<void()> job);
  /// Blocks until everything posted before has run, but for what is to run later.
  void drain();
  /// Drops what waits and ends the thread after the job that runs. Idempotent.
  void stop();

 private:
  void run(int nice);
  void take_due();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  std::multimap<std::chrono::steady_clock::time_point, std::function<void()>> later_;
  bool busy_ = false, stopping_ = false;
  std::thread thread_;
};

}  // namespace dsec::container

#include "backends/fake/timer.hpp"

#include <condition_variable>
#include <map>
#include <utility>

namespace dsec::fake {

/// What the thread works on; the timer may be gone when a call returns.
struct timer::schedule {
  std::mutex mutex;
  std::condition_variable changed;
  std::multimap<std::chrono::steady_clock::time_point, std::function<void()>> due;
  bool stopping = false;

  void run();
};

timer::timer() : schedule_(std::make_shared<schedule>()) {}

timer::~timer() {
  decltype(schedule_->due) dropped;
  {
    const std::scoped_lock lock(schedule_->mutex);
    schedule_->stopping = true;
    dropped.swap(schedule_->due);
  }
  schedule_->changed.notify_all();
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else if (thread_.joinable()) {
    thread_.join();
  }
}

void timer::after(std::chrono::milliseconds delay, std::function<void()> call) {
  {
    const std::scoped_lock lock(schedule_->mutex);
    schedule_->due.emplace(std::chrono::steady_clock::now() + delay, std::move(call));
  }
  schedule_->changed.notify_all();
  const std::scoped_lock lock(mutex_);
  if (!thread_.joinable()) thread_ = std::thread([s = schedule_] { s->run(); });
}

void timer::schedule::run() {
  std::unique_lock lock(mutex);
  while (!stopping) {
    if (due.empty()) {
      changed.wait(lock);
      continue;
    }
    const auto first = due.begin()->first;
    if (changed.wait_until(lock, first) == std::cv_status::no_timeout) continue;
    if (stopping || due.empty() || due.begin()->first > std::chrono::steady_clock::now()) continue;
    auto call = std::move(due.begin()->second);
    due.erase(due.begin());
    lock.unlock();
    call();
    call = {};  // what it held goes without the lock
    lock.lock();
  }
}

}  // namespace dsec::fake

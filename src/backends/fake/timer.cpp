#include "backends/fake/timer.hpp"

#include <utility>

namespace dsec::fake {

timer::~timer() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void timer::after(std::chrono::milliseconds delay, std::function<void()> call) {
  const std::scoped_lock lock(mutex_);
  due_.emplace(std::chrono::steady_clock::now() + delay, std::move(call));
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  changed_.notify_all();
}

void timer::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (due_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto first = due_.begin();
    if (changed_.wait_until(lock, first->first) == std::cv_status::no_timeout) continue;
    if (stopping_ || due_.empty() || due_.begin()->first > std::chrono::steady_clock::now())
      continue;
    auto call = std::move(due_.begin()->second);
    due_.erase(due_.begin());
    lock.unlock();
    call();
    lock.lock();
  }
}

}  // namespace dsec::fake

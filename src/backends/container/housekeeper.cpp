#include "backends/container/housekeeper.hpp"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

namespace dsec::container {

housekeeper::housekeeper(const char* name, int nice) : thread_([this, nice] { run(nice); }) {
  ::pthread_setname_np(thread_.native_handle(), name);
}

housekeeper::~housekeeper() {
  stop();
}

void housekeeper::post(std::function<void()> job) {
  const std::scoped_lock lock(mutex_);
  if (stopping_) return;
  jobs_.push_back(std::move(job));
  changed_.notify_all();
}

void housekeeper::post_later(std::chrono::milliseconds delay, std::function<void()> job) {
  const std::scoped_lock lock(mutex_);
  if (stopping_) return;
  const auto at = std::chrono::steady_clock::now() + delay;
  const bool first = later_.empty() || at < later_.begin()->first;
  later_.emplace(at, std::move(job));
  if (first) changed_.notify_all();
}

void housekeeper::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stopping_ || (jobs_.empty() && !busy_); });
}

void housekeeper::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    jobs_.clear();
    later_.clear();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

/// Under the lock.
void housekeeper::take_due() {
  const auto now = std::chrono::steady_clock::now();
  while (!later_.empty() && later_.begin()->first <= now) {
    jobs_.push_back(std::move(later_.begin()->second));
    later_.erase(later_.begin());
  }
}

void housekeeper::run(int nice) {
  // Niceness is per thread on Linux (setpriority(2), "C library/kernel differences").
  if (nice != 0) ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), nice);
  std::unique_lock lock(mutex_);
  while (true) {
    take_due();
    if (!stopping_ && jobs_.empty()) {
      if (later_.empty()) {
        changed_.wait(lock);
      } else {
        const auto next = later_.begin()->first;  // may be dropped while this waits for it
        changed_.wait_until(lock, next);
      }
      continue;
    }
    if (stopping_) return;
    const auto job = std::move(jobs_.front());
    jobs_.pop_front();
    busy_ = true;
    lock.unlock();
    job();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

}  // namespace dsec::container

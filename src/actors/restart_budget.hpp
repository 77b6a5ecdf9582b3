// How often something may be restarted before its supervisor gives up. Pure.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>

namespace dsec::actors {

class restart_budget {
 public:
  static constexpr std::size_t most = 5;
  static constexpr std::chrono::seconds window{60};

  /// Whether one more restart at `now` is within the budget; if so it is counted.
  bool spend(std::chrono::steady_clock::time_point now) {
    while (!recent_.empty() && now - recent_.front() > window) recent_.pop_front();
    if (recent_.size() >= most) return false;
    recent_.push_back(now);
    return true;
  }

 private:
  std::deque<std::chrono::steady_clock::time_point> recent_;
};

}  // namespace dsec::actors

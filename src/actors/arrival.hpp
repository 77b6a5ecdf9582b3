// Counts the creates of one link for the reports that say how full a worker is. A create counts
// when the edge has it, which from then on counts it in its load, or when nobody has it any more.
// Counted where it comes in it would be missing in a load that was asked for before it had got to
// the edge, and placement would take the worker for emptier than it is. Any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace dsec::actors {

using arrivals = std::atomic<std::uint64_t>;

class arrival {
 public:
  explicit arrival(std::shared_ptr<arrivals> all) : all_(std::move(all)) {}
  ~arrival() { note(); }
  arrival(const arrival&) = delete;
  arrival& operator=(const arrival&) = delete;

  /// Once, however often it is called.
  void note() const {
    if (!noted_.exchange(true)) ++*all_;
  }

 private:
  const std::shared_ptr<arrivals> all_;
  mutable std::atomic<bool> noted_{false};
};

}  // namespace dsec::actors

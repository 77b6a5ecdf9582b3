// Keys of creates that were withdrawn a moment ago. What one client sends over several connections
// arrives in any order, and twice when an answer was lost. Belongs to the edge.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <set>
#include <utility>

#include "actors/edge_table.hpp"

namespace dsec::actors {

class withdrawn_keys {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  /// What is in a socket is read within that.
  static constexpr std::chrono::seconds kept{30};
  /// The oldest go first.
  static constexpr std::size_t most = 10'000;

  void add(const edge_table::key& key, time_point now) {
    drop_old(now);
    if (!known_.insert(key).second) return;
    order_.emplace_back(now, key);
    if (order_.size() > most) drop_first();
  }
  [[nodiscard]] bool contains(const edge_table::key& key, time_point now) {
    drop_old(now);
    return known_.contains(key);
  }

 private:
  void drop_old(time_point now) {
    while (!order_.empty() && order_.front().first + kept <= now) drop_first();
  }
  void drop_first() {
    known_.erase(order_.front().second);
    order_.pop_front();
  }

  std::set<edge_table::key> known_;
  std::deque<std::pair<time_point, edge_table::key>> order_;  // and since when
};

}  // namespace dsec::actors

// Who may start now. Admission is by need, not by limit: a new sandbox needs what small sandboxes
// use at first, and must find that much memory beyond a reserve that is never given away; the
// limits of all may add up to `overcommit` times what there is. Creates that do not fit wait, fair
// between principals. Pure; the edge owns one of each and calls them on its own thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "actors/node_memory.hpp"

namespace dsec::actors {

/// What a sandbox is expected to use in its first seconds, bytes: a shell and a small tool. Its
/// limit when less.
inline constexpr std::uint64_t first_need_bytes = 16ULL << 20U;
/// A sandbox counts with its first need for so long after it was admitted; then measurement has
/// caught up.
inline constexpr std::chrono::seconds settling_time{2};

struct admission_policy {
  std::uint32_t slots = 0;
  std::uint64_t reserve_bytes = 0;
  double overcommit = 1.0;
};

struct node_load {
  memory_reading memory;
  std::uint32_t slots_used = 0;
  std::uint64_t limits_bytes = 0;    // sum over live sandboxes
  std::uint64_t settling_bytes = 0;  // first needs of those admitted less than settling_time ago
};

enum class scarce { nothing, slots, memory, memory_limits };

/// What stands in the way of one more sandbox with this memory limit.
scarce find_scarce(const admission_policy& policy, const node_load& load,
                   std::uint64_t limit_bytes);

/// Whether a sandbox with this limit could start on an empty node.
bool can_ever_fit(const admission_policy& policy, const memory_reading& memory,
                  std::uint64_t limit_bytes);

/// The resource, as an error's object.
std::string_view name_of(scarce what);

/// A sentence naming the resource and its numbers.
std::string describe(scarce what, const admission_policy& policy, const node_load& load,
                     std::uint64_t limit_bytes);

/// First need of a sandbox.
std::uint64_t first_need(std::uint64_t limit_bytes);

/// Waiting creates. Principals take turns; within one, first come, first served. A create that does
/// not fit keeps its turn, and lets others pass at most `max_passes` times: then it is next,
/// whatever it needs.
class admission_queue {
 public:
  using ticket = std::uint64_t;
  static constexpr unsigned max_passes = 64;

  explicit admission_queue(std::size_t bound) : bound_(bound) {}

  /// False when the queue is full.
  bool push(const std::string& principal, ticket t, std::uint64_t limit_bytes);
  void remove(ticket t);
  /// The next create for which `fits` holds, taken out of the queue.
  std::optional<ticket> pop(const std::function<bool(std::uint64_t limit_bytes)>& fits);
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] bool empty() const { return size_ == 0; }

 private:
  struct waiting {
    ticket t;
    std::uint64_t limit_bytes;
    unsigned passed = 0;
  };
  struct line {
    std::string principal;
    std::deque<waiting> creates;
  };

  ticket take(std::size_t turn);

  std::size_t bound_;
  std::size_t size_ = 0;
  std::deque<line> lines_;  // in order of turn; never an empty line
};

}  // namespace dsec::actors

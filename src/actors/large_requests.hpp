// Requests of one connection whose replies may be large: what those under way may bring is
// promised, and is bounded; the others wait here for their turn. A sandbox can keep its helpers
// from ever answering, so it owes only a few replies at a time: its own requests wait for that, not
// those about others. Pure; belongs to one connection's state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>

#include "actors/interfaces.hpp"

namespace dsec::actors {

class large_requests {
 public:
  /// Replies that one sandbox may owe.
  static constexpr std::size_t most_promises = 2;

  struct request {
    std::uint64_t id = 0, serial = 0;
    std::string sandbox_id;  // empty: not about one sandbox
    std::size_t bytes = 0;   // that its reply may have
    time_point deadline;
  };

  void hold(request r);
  /// The next one whose turn it is: what it may bring is promised from now on. `has_room` says
  /// whether there is room for so many bytes; one that is large is not overtaken by small ones for
  /// ever.
  std::optional<request> next(time_point now, const std::function<bool(std::size_t)>& has_room);
  /// It is over, whether or not its turn had come.
  void end(std::uint64_t serial);

  [[nodiscard]] std::size_t promised() const { return promised_; }
  [[nodiscard]] std::size_t held() const { return held_.size(); }

 private:
  [[nodiscard]] bool owes_enough(const std::string& sandbox_id) const;

  std::deque<request> held_;
  std::unordered_map<std::uint64_t, request> asked_;  // by serial
  std::size_t promised_ = 0;
  std::unordered_map<std::string, std::size_t> promises_to_;  // how many, by sandbox
};

}  // namespace dsec::actors

// What of large requests and replies is under way on a link, and whose turn is next. One principal
// has at most a quarter of the link, and whoever has nothing under way may have one soon: so
// nobody, however much he sends or however long his answers take, keeps the link from others. What
// waits does so in its principal's line; principals take turns. Pure; belongs to one link's state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "proto/peer.hpp"

namespace dsec::actors {

class link_share {
 public:
  static constexpr std::size_t most_of_one = proto::max_link_bytes / 4;
  /// With those of principals that have nothing else under way. Should all of it come back at once,
  /// it must not close the link (proto::max_peer_queued_bytes).
  static constexpr std::size_t most_of_all = proto::max_link_bytes / 2 * 3;

  void hold(const std::string& who, std::uint64_t call, std::size_t bytes);
  /// The next call that may go; its bytes are under way from now on.
  std::optional<std::uint64_t> next();
  /// So much of what `who` has under way is no more.
  void release(const std::string& who, std::size_t bytes);
  /// It waits no more.
  void drop(const std::string& who, std::uint64_t call);

  [[nodiscard]] bool holds_any() const { return held_ > 0; }
  [[nodiscard]] std::size_t under_way() const { return under_way_; }
  /// Principals that are known here: those that have something waiting or under way.
  [[nodiscard]] std::size_t principals() const { return lines_.size(); }

 private:
  struct line {
    std::deque<std::pair<std::uint64_t, std::size_t>> held;  // calls and their bytes
    std::size_t under_way = 0;
  };
  using lines = std::map<std::string, line>;

  [[nodiscard]] bool may_go(const line& l) const;
  void forget_if_empty(lines::iterator it);

  lines lines_;
  std::string last_;  // whose turn it was
  std::size_t held_ = 0;
  std::size_t under_way_ = 0;
};

}  // namespace dsec::actors

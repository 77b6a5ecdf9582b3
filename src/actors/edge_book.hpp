// The workers that a coordinator knows by name, and since when each is gone. Kept in a small file,
// so that a coordinator that was started again can tell a worker that is on its way back from one
// that has never been. Nothing else is remembered of them, and the file may be lost. Pure but for
// load_edges(); belongs to the cluster actor.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace dsec::actors {

class edge_book {
 public:
  using time_point = std::chrono::steady_clock::time_point;
  /// Who has been gone for so long is not named any more.
  static constexpr std::chrono::hours forgotten_after{24 * 7};
  static constexpr std::size_t most = 10'000;

  /// Those of the file are gone since `now`.
  edge_book(const std::vector<std::string>& known, time_point now);

  /// True when the name is new.
  bool joined(const std::string& edge);
  void left(const std::string& edge, time_point now);
  [[nodiscard]] bool knows(const std::string& edge) const { return edges_.contains(edge); }
  /// Since when it is gone; nullopt while it is there, or not known.
  [[nodiscard]] std::optional<time_point> gone_since(const std::string& edge) const;
  /// All names, and those of the gone alone.
  [[nodiscard]] std::vector<std::string> names() const;
  [[nodiscard]] std::vector<std::string> gone() const;
  /// Names whose time is over are dropped; true when there were any.
  bool forget_old(time_point now);
  [[nodiscard]] std::string text() const;

 private:
  std::map<std::string, std::optional<time_point>> edges_;  // since when it is gone
};

/// The names in a file that text() was written to; none when there is no such file.
base::result<std::vector<std::string>> load_edges(const std::filesystem::path& file);

}  // namespace dsec::actors

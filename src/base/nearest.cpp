#include "base/nearest.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

namespace dsec::base {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j < b.size(); ++j) {
      const auto replace = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replace, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

std::string nearest(std::span<const std::string> candidates, std::string_view wanted) {
  std::string best;
  std::size_t best_distance = wanted.size() / 2 + 1;
  for (const auto& candidate : candidates) {
    if (const auto d = edit_distance(candidate, wanted); d < best_distance) {
      best_distance = d;
      best = candidate;
    }
  }
  return best;
}

}  // namespace dsec::base

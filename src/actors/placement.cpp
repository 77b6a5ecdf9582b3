#include "actors/placement.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "base/ids.hpp"

namespace dsec::actors {
namespace {

/// FNV alone hardly changes its upper bits with the last letters (the finalizer of SplitMix64).
std::uint64_t mixed(std::uint64_t x) {
  x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31U);
}

edge_load with_unseen(const candidate& c, std::uint64_t limit_bytes) {
  auto load = c.load;
  const auto coming = load.waiting + c.unseen;
  load.now.slots_used += coming;
  load.now.limits_bytes += coming * limit_bytes;
  load.now.settling_bytes += coming * first_need(limit_bytes);
  return load;
}

}  // namespace

std::vector<std::string> rendezvous(std::string_view principal, std::string_view key,
                                    std::vector<std::string> edges) {
  const auto both = std::string(principal) + '\0' + std::string(key) + '\0';
  std::vector<std::pair<std::uint64_t, std::string>> ranked;
  ranked.reserve(edges.size());
  for (auto& edge : edges) {
    const auto rank = mixed(base::id_hash(both + edge));
    ranked.emplace_back(rank, std::move(edge));
  }
  std::sort(ranked.begin(), ranked.end(), std::greater<>());
  edges.clear();
  for (auto& r : ranked) edges.push_back(std::move(r.second));
  return edges;
}

double fullness(const candidate& c) {
  const auto load = with_unseen(c, first_need_bytes);
  const auto slots = static_cast<double>(load.now.slots_used) /
                     static_cast<double>(std::max(load.policy.slots, 1U));
  const auto total =
      load.now.memory.total - std::min(load.now.memory.total, load.policy.reserve_bytes);
  const auto taken = load.policy.reserve_bytes + load.now.settling_bytes;
  const auto free = load.now.memory.available - std::min(load.now.memory.available, taken);
  if (total == 0) return std::max(slots, 1.0);
  return std::max(slots, 1.0 - static_cast<double>(free) / static_cast<double>(total));
}

std::vector<std::string> places(const std::vector<candidate>& from, std::uint64_t limit_bytes) {
  struct place {
    bool lacks_images, lacks_room;
    double fullness;
    const std::string* edge;
  };
  std::vector<place> all;
  for (const auto& c : from) {
    if (!c.healthy || c.load.draining) continue;
    const auto load = with_unseen(c, limit_bytes);
    const bool room = find_scarce(load.policy, load.now, limit_bytes) == scarce::nothing;
    all.push_back({!c.has_images, !room, fullness(c), &c.edge});
  }
  std::stable_sort(all.begin(), all.end(), [](const place& a, const place& b) {
    return std::tie(a.lacks_images, a.lacks_room, a.fullness) <
           std::tie(b.lacks_images, b.lacks_room, b.fullness);
  });
  std::vector<std::string> out;
  out.reserve(all.size());
  for (const auto& p : all) out.push_back(*p.edge);
  return out;
}

}  // namespace dsec::actors

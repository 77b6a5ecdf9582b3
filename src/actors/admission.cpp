#include "actors/admission.hpp"

#include <algorithm>
#include <utility>

namespace dsec::actors {
namespace {

/// Bytes that sandboxes may use at most.
std::uint64_t usable(const admission_policy& policy, const memory_reading& memory) {
  return memory.total - std::min(memory.total, policy.reserve_bytes);
}

std::uint64_t most_limits(const admission_policy& policy, const memory_reading& memory) {
  return static_cast<std::uint64_t>(static_cast<double>(usable(policy, memory)) *
                                    policy.overcommit);
}

std::string mib(std::uint64_t bytes) {
  return std::to_string(bytes >> 20U) + " MiB";
}

}  // namespace

std::uint64_t first_need(std::uint64_t limit_bytes) {
  return std::min(limit_bytes, first_need_bytes);
}

scarce find_scarce(const admission_policy& policy, const node_load& load,
                   std::uint64_t limit_bytes) {
  if (load.slots_used >= policy.slots) return scarce::slots;
  if (load.limits_bytes + limit_bytes > most_limits(policy, load.memory))
    return scarce::memory_limits;
  const auto spoken_for = policy.reserve_bytes + load.settling_bytes + first_need(limit_bytes);
  if (load.memory.available < spoken_for) return scarce::memory;
  return scarce::nothing;
}

bool can_ever_fit(const admission_policy& policy, const memory_reading& memory,
                  std::uint64_t limit_bytes) {
  return limit_bytes <= most_limits(policy, memory) &&
         first_need(limit_bytes) <= usable(policy, memory);
}

std::string_view name_of(scarce what) {
  switch (what) {
    case scarce::slots:
      return "slots";
    case scarce::memory:
      return "memory";
    case scarce::memory_limits:
      return "memory limits";
    case scarce::nothing:
      break;
  }
  return "nothing";
}

std::string describe(scarce what, const admission_policy& policy, const node_load& load,
                     std::uint64_t limit_bytes) {
  switch (what) {
    case scarce::slots:
      return std::string(name_of(what)) + ": all " + std::to_string(policy.slots) + " are taken";
    case scarce::memory:
      return std::string(name_of(what)) + ": " + mib(load.memory.available) + " available, " +
             mib(policy.reserve_bytes) + " of it reserved";
    case scarce::memory_limits:
      return std::string(name_of(what)) + ": " + mib(load.limits_bytes) + " promised and " +
             mib(limit_bytes) + " asked for, " + mib(most_limits(policy, load.memory)) +
             " allowed in all";
    case scarce::nothing:
      break;
  }
  return "nothing";
}

bool admission_queue::push(const std::string& principal, ticket t, std::uint64_t limit_bytes) {
  if (size_ >= bound_) return false;
  auto l = std::find_if(lines_.begin(), lines_.end(),
                        [&](const line& x) { return x.principal == principal; });
  if (l == lines_.end()) l = lines_.insert(lines_.end(), line{principal, {}});
  l->creates.push_back({t, limit_bytes});
  ++size_;
  return true;
}

void admission_queue::remove(ticket t) {
  for (auto l = lines_.begin(); l != lines_.end(); ++l) {
    const auto w = std::find_if(l->creates.begin(), l->creates.end(),
                                [&](const waiting& x) { return x.t == t; });
    if (w == l->creates.end()) continue;
    l->creates.erase(w);
    --size_;
    if (l->creates.empty()) lines_.erase(l);
    return;
  }
}

/// Takes the head of the line at `turn` and sends that line to the end.
admission_queue::ticket admission_queue::take(std::size_t turn) {
  auto l = std::move(lines_[turn]);
  lines_.erase(lines_.begin() + static_cast<std::ptrdiff_t>(turn));
  const auto t = l.creates.front().t;
  l.creates.pop_front();
  --size_;
  if (!l.creates.empty()) lines_.push_back(std::move(l));
  return t;
}

std::optional<admission_queue::ticket> admission_queue::pop(
    const std::function<bool(std::uint64_t)>& fits) {
  for (std::size_t turn = 0; turn < lines_.size(); ++turn) {
    const auto& head = lines_[turn].creates.front();
    if (fits(head.limit_bytes)) {
      for (std::size_t i = 0; i < turn; ++i) ++lines_[i].creates.front().passed;
      return take(turn);
    }
    if (head.passed >= max_passes) return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace dsec::actors

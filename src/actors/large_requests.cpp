#include "actors/large_requests.hpp"

#include <utility>

namespace dsec::actors {

void large_requests::hold(request r) {
  held_.push_back(std::move(r));
}

bool large_requests::owes_enough(const std::string& sandbox_id) const {
  const auto it = promises_to_.find(sandbox_id);
  return it != promises_to_.end() && it->second >= most_promises;
}

std::optional<large_requests::request> large_requests::next(
    time_point now, const std::function<bool(std::size_t)>& has_room) {
  for (auto it = held_.begin(); it != held_.end(); ++it) {
    // What is late by now is answered by an alarm and costs nobody else anything.
    if (it->deadline <= now || owes_enough(it->sandbox_id)) continue;
    if (!has_room(it->bytes)) return std::nullopt;
    auto r = std::move(*it);
    held_.erase(it);
    promised_ += r.bytes;
    if (!r.sandbox_id.empty()) ++promises_to_[r.sandbox_id];
    return asked_.emplace(r.serial, std::move(r)).first->second;
  }
  return std::nullopt;
}

void large_requests::end(std::uint64_t serial) {
  const auto asked = asked_.extract(serial);
  if (!asked) {
    std::erase_if(held_, [serial](const request& r) { return r.serial == serial; });
    return;
  }
  promised_ -= asked.mapped().bytes;
  const auto to = promises_to_.find(asked.mapped().sandbox_id);
  if (to != promises_to_.end() && --to->second == 0) promises_to_.erase(to);
}

}  // namespace dsec::actors

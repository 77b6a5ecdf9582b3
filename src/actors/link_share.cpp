#include "actors/link_share.hpp"

namespace dsec::actors {

void link_share::hold(const std::string& who, std::uint64_t call, std::size_t bytes) {
  lines_[who].held.emplace_back(call, bytes);
  ++held_;
}

bool link_share::may_go(const line& l) const {
  if (l.held.empty()) return false;
  const auto all = under_way_ + l.held.front().second;
  if (l.under_way == 0) return under_way_ == 0 || all <= most_of_all;
  return l.under_way + l.held.front().second <= most_of_one && all <= proto::max_link_bytes;
}

std::optional<std::uint64_t> link_share::next() {
  auto it = lines_.upper_bound(last_);
  for (std::size_t seen = 0; seen < lines_.size(); ++seen, ++it) {
    if (it == lines_.end()) it = lines_.begin();
    auto& l = it->second;
    if (!may_go(l)) continue;
    const auto [call, bytes] = l.held.front();
    l.held.pop_front();
    --held_;
    l.under_way += bytes;
    under_way_ += bytes;
    last_ = it->first;
    return call;
  }
  return std::nullopt;
}

void link_share::release(const std::string& who, std::size_t bytes) {
  const auto it = lines_.find(who);
  if (it == lines_.end()) return;
  it->second.under_way -= bytes;
  under_way_ -= bytes;
  forget_if_empty(it);
}

void link_share::drop(const std::string& who, std::uint64_t call) {
  const auto it = lines_.find(who);
  if (it == lines_.end()) return;
  held_ -= std::erase_if(it->second.held, [call](const auto& h) { return h.first == call; });
  forget_if_empty(it);
}

void link_share::forget_if_empty(lines::iterator it) {
  if (it->second.held.empty() && it->second.under_way == 0) lines_.erase(it);
}

}  // namespace dsec::actors

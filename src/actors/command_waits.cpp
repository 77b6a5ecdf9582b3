#include "actors/command_waits.hpp"

#include <algorithm>
#include <iterator>

namespace dsec::actors {
namespace {

/// Moves those out of `list` of which `is_it` holds; all stay in their order.
template <class F>
std::vector<command_wait> part(std::vector<command_wait>& list, F&& is_it) {
  std::vector<command_wait> out;
  const auto rest = std::stable_partition(list.begin(), list.end(),
                                          [&](const command_wait& w) { return !is_it(w); });
  std::move(rest, list.end(), std::back_inserter(out));
  list.erase(rest, list.end());
  return out;
}

}  // namespace

command_waits::~command_waits() {
  for (auto& [command_id, list] : waiting_) {
    for (auto& w : list) w.who.abandon();
  }
}

bool command_waits::has_room(std::size_t limit) {
  if (size_ < limit) return true;
  for (auto& [command_id, w] : take([](const command_wait& x) { return x.who.gone(); }))
    w.who.abandon();
  return size_ < limit;
}

void command_waits::add(const std::string& command_id, command_wait w) {
  waiting_[command_id].push_back(std::move(w));
  ++size_;
}

std::vector<command_wait> command_waits::ready(const command& c) {
  const auto found = waiting_.find(c.id);
  if (found == waiting_.end()) return {};
  const bool runs = c.now == command::state::running;
  auto out = part(found->second,
                  [&](const command_wait& w) { return c.over() || (runs && w.until_started); });
  size_ -= out.size();
  if (found->second.empty()) waiting_.erase(found);
  return out;
}

template <class F>
std::vector<std::pair<std::string, command_wait>> command_waits::take(F&& is_it) {
  std::vector<std::pair<std::string, command_wait>> all;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    for (auto& w : part(it->second, is_it)) all.emplace_back(it->first, std::move(w));
    it = it->second.empty() ? waiting_.erase(it) : std::next(it);
  }
  size_ -= all.size();
  return all;
}

std::vector<std::pair<std::string, command_wait>> command_waits::late(time_point at) {
  return take([at](const command_wait& w) { return w.who.deadline <= at; });
}

time_point command_waits::earliest() const {
  auto first = time_point::max();
  for (const auto& [command_id, list] : waiting_) {
    for (const auto& w : list) first = std::min(first, w.who.deadline);
  }
  return first;
}

}  // namespace dsec::actors

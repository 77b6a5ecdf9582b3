#include "actors/lease_table.hpp"

#include <algorithm>

namespace dsec::actors {

lease_table::holder& lease_table::holder::operator=(holder&& other) noexcept {
  if (this == &other) return *this;
  let_go();
  table_ = std::move(other.table_);
  what_ = std::move(other.what_);
  return *this;
}

void lease_table::holder::let_go() {
  if (const auto table = std::exchange(table_, nullptr)) table->release(what_);
}

lease_table::lease_table(std::function<time_point()> now, watcher watch)
    : now_(std::move(now)), watch_(std::move(watch)) {}

void lease_table::tell(const key& what, const entry& e, bool held) const {
  const auto ms = static_cast<std::uint32_t>(e.longest.count());
  if (watch_) watch_(what.first, {what.second, ms}, held);
}

std::vector<std::pair<std::string, lease>> lease_table::held() const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::pair<std::string, lease>> out;
  for (const auto& [what, e] : known_) {
    if (e.holders == 0) continue;
    const auto ms = static_cast<std::uint32_t>(e.longest.count());
    out.emplace_back(what.first, lease{what.second, ms});
  }
  return out;
}

lease_table::holder lease_table::hold(const std::string& principal, const lease& l) {
  const key what{principal, l.id};
  const std::scoped_lock lock(mutex_);
  auto& e = known(what, l.ms);
  if (++e.holders == 1) tell(what, e, true);
  forget_old(now_());
  return {shared_from_this(), what};
}

void lease_table::release(const key& what) {
  const std::scoped_lock lock(mutex_);
  auto& e = known_.at(what);
  const auto now = now_();
  if (--e.holders == 0) {
    e.released = now;
    tell(what, e, false);
    forget_later(what, e);
  }
  forget_old(now);
}

void lease_table::open() {
  const std::scoped_lock lock(mutex_);
  opened_ = now_();
  for (auto& [what, e] : known_) forget_later(what, e);
}

std::optional<lease_table::time_point> lease_table::ends(const std::string& principal,
                                                         const lease& l) {
  const key what{principal, l.id};
  const std::scoped_lock lock(mutex_);
  forget_old(now_());
  auto& e = known(what, l.ms);
  e.bound = true;
  forget_later(what, e);
  const auto from = counts_from(e);
  if (!from) return std::nullopt;
  return *from + std::chrono::milliseconds(l.ms);
}

std::size_t lease_table::size() const {
  const std::scoped_lock lock(mutex_);
  return known_.size();
}

lease_table::entry& lease_table::known(const key& what, std::uint32_t ms) {
  auto& e = known_[what];
  e.longest = std::max(e.longest, std::chrono::milliseconds(ms));
  return e;
}

std::optional<lease_table::time_point> lease_table::counts_from(const entry& e) const {
  if (e.holders > 0 || !opened_) return std::nullopt;
  return e.released ? e.released : opened_;
}

void lease_table::forget_later(const key& what, entry& e) {
  const auto from = counts_from(e);
  if (!from || std::exchange(e.due, true)) return;
  due_.emplace(*from + e.remembered(), what);
}

/// It may have been held again meanwhile, or asked for with a longer time.
void lease_table::forget_old(time_point now) {
  while (!due_.empty() && due_.begin()->first <= now) {
    const auto what = std::move(due_.begin()->second);
    due_.erase(due_.begin());
    const auto it = known_.find(what);
    it->second.due = false;
    const auto from = counts_from(it->second);
    if (from && *from + it->second.remembered() <= now) {
      known_.erase(it);
    } else {
      forget_later(what, it->second);
    }
  }
}

}  // namespace dsec::actors

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

lease_table::lease_table(std::function<time_point()> now) : now_(std::move(now)), made_(now_()) {}

lease_table::holder lease_table::hold(const std::string& principal, const lease& l) {
  const key what{principal, l.id};
  const std::scoped_lock lock(mutex_);
  longest_ = std::max(longest_, std::chrono::milliseconds(l.ms));
  ++known_[what].holders;
  forget_old(now_());
  return {shared_from_this(), what};
}

void lease_table::release(const key& what) {
  const std::scoped_lock lock(mutex_);
  auto& e = known_.at(what);
  const auto now = now_();
  if (--e.holders == 0) {
    e.released = now;
    released_.emplace_back(now, what);
  }
  forget_old(now);
}

std::optional<lease_table::time_point> lease_table::ends(const std::string& principal,
                                                         const lease& l) {
  const std::chrono::milliseconds time(l.ms);
  const std::scoped_lock lock(mutex_);
  longest_ = std::max(longest_, time);
  const auto it = known_.find({principal, l.id});
  if (it == known_.end()) return made_ + time;
  if (it->second.holders > 0) return std::nullopt;
  return it->second.released + time;
}

std::size_t lease_table::size() const {
  const std::scoped_lock lock(mutex_);
  return known_.size();
}

void lease_table::forget_old(time_point now) {
  while (!released_.empty() && released_.front().first + longest_ <= now) {
    const auto it = known_.find(released_.front().second);
    if (it != known_.end() && it->second.holders == 0 &&
        it->second.released == released_.front().first) {
      known_.erase(it);
    }
    released_.pop_front();
  }
}

}  // namespace dsec::actors

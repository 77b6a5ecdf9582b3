#include "actors/link_leases.hpp"

#include <algorithm>

namespace dsec::actors {

link_leases::link_leases(std::shared_ptr<lease_table> table,
                         const std::vector<std::string>& coordinators)
    : table_(std::move(table)) {
  for (const auto& c : coordinators) coordinators_[c];
}

void link_leases::link_stands(const std::string& coordinator, time_point now) {
  const std::scoped_lock lock(mutex_);
  auto& c = coordinators_[coordinator];
  c.stands = c.has_stood = true;
  if (!first_stood_) first_stood_ = now;
  for (auto& k : c.lost) k.until = std::min(now + k.left, k.lost + longest_in_all);
  open_in_time(now);
}

void link_leases::link_lost(const std::string& coordinator, time_point now) {
  const std::scoped_lock lock(mutex_);
  auto& c = coordinators_[coordinator];
  if (!std::exchange(c.stands, false)) return;
  for (auto& k : c.lost) {
    k.left = std::max<std::chrono::nanoseconds>(k.until - now, std::chrono::nanoseconds(0));
    k.until = std::min(now + longest_grace, k.lost + longest_in_all);
  }
  if (!c.held.empty())
    c.lost.push_back({now, now + longest_grace, grace, std::exchange(c.held, {})});
}

void link_leases::hold(const std::string& coordinator, const std::string& principal,
                       const lease& l) {
  const std::scoped_lock lock(mutex_);
  coordinators_[coordinator].held.insert_or_assign({principal, l.id}, table_->hold(principal, l));
}

void link_leases::release(const std::string& coordinator, const std::string& principal,
                          const lease& l) {
  const std::scoped_lock lock(mutex_);
  coordinators_[coordinator].held.erase({principal, l.id});
}

void link_leases::look(time_point now) {
  const std::scoped_lock lock(mutex_);
  for (auto& [name, c] : coordinators_)
    std::erase_if(c.lost, [now](const kept& k) { return k.until <= now; });
  open_in_time(now);
}

void link_leases::open_in_time(time_point now) {
  if (open_ || !first_stood_) return;
  const bool all = std::all_of(coordinators_.begin(), coordinators_.end(),
                               [](const auto& c) { return c.second.has_stood; });
  if (!all && now - *first_stood_ < longest_grace) return;
  open_ = true;
  table_->open();
}

}  // namespace dsec::actors

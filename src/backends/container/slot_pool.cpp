#include "backends/container/slot_pool.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <vector>

#include "backends/container/home.hpp"
#include "base/failpoint.hpp"
#include "base/log.hpp"

namespace dsec::container {
namespace {

using base::errc;
using base::fail;
using base::result;

constexpr std::uint32_t uids_per_slot = 65536;
constexpr auto remove_timeout = std::chrono::seconds(5);

}  // namespace

slot_pool::slot_pool(const cgroup_tree& groups, launcher& host, trash& bin,
                     const base::paths& paths, const base::node_config& node,
                     const backends::limits& expected)
    : groups_(groups), host_(host), trash_(bin), paths_(paths), node_(node), expected_(expected) {
  const auto taken = groups.slots().value_or(std::vector<std::string>());
  for (std::uint32_t n = 0; n < node.max_sandboxes; ++n) {
    if (std::find(taken.begin(), taken.end(), std::to_string(n)) == taken.end())
      free_.insert(free_.end(), n);
  }
}

result<std::uint32_t> slot_pool::reserve() {
  const std::scoped_lock lock(mutex_);
  if (free_.empty() && doubtful_.empty())
    return fail(errc::capacity,
                "slots: all " + std::to_string(node_.max_sandboxes) + " are in use");
  const auto number = free_.empty() ? doubtful_.front() : *free_.begin();
  if (free_.empty())
    doubtful_.pop_front();
  else
    free_.erase(free_.begin());
  return number;
}

void slot_pool::set_aside(std::uint32_t number) {
  const std::scoped_lock lock(mutex_);
  doubtful_.push_back(number);
}

void slot_pool::free(std::uint32_t number) {
  if (number >= node_.max_sandboxes) return;  // of a run that was configured to have more
  const std::scoped_lock lock(mutex_);
  free_.insert(number);
}

result<slot> slot_pool::take() {
  // First, so that a launcher that cannot be had costs no slot.
  DSEC_TRY(const auto lease, host_.get());
  auto ready = take_ready();
  if (!ready) {
    auto made = make_next();
    if (!made && made.error().code != errc::capacity) made = make_next();
    if (made || made.error().code != errc::capacity) return made;
    // A refill that is under way may have the last number; it makes that one for us.
    const std::scoped_lock refilled(refill_mutex_);
    ready = take_ready();
    if (!ready) return made;
  }
  if (lease.generation == ready->generation) return std::move(*ready);
  // Its namespaces went with the launcher that held them.
  auto made = make_namespaces(*ready);
  if (made) return std::move(*ready);
  if (const auto undone = give_back(*ready); !undone)
    base::log::warn("slot_left", {{"slot", ready->number}, {"error", undone.error().to_string()}});
  return fail(made.error());
}

std::uint32_t slot_pool::ready() {
  const std::scoped_lock lock(mutex_);
  return static_cast<std::uint32_t>(ready_.size());
}

std::optional<slot> slot_pool::take_ready() {
  const std::scoped_lock lock(mutex_);
  if (ready_.empty()) return std::nullopt;
  auto first = std::move(ready_.front());
  ready_.pop_front();
  return first;
}

/// One that fails may have something in its own way, which must not be in the way of all others.
result<slot> slot_pool::make_next() {
  DSEC_TRY(const auto number, reserve());
  auto made = make(number);
  if (made) return made;
  if (made.error().code == errc::unavailable)
    free(number);  // the launcher's fault
  else
    set_aside(number);
  return made;
}

result<slot> slot_pool::make(std::uint32_t number) {
  DSEC_CHECK(base::failpoint::check("container.slots.make"));
  slot s;
  s.number = number;
  DSEC_TRY(s.groups, groups_.make_slot(number, node_.aether_uid_base + number));
  auto rest = groups_.set_limits(s.groups, expected_);
  if (rest) rest = make_home(paths_, number);
  if (rest) rest = make_namespaces(s);
  if (rest) return s;
  (void)trash_.discard(paths_.sandboxes() / unnamed_home(number));
  if (const auto undone = groups_.remove_slot(s.groups.name, sys::after(remove_timeout)); !undone)
    base::log::warn("slot_left", {{"slot", number}, {"error", undone.error().to_string()}});
  return fail(rest.error());
}

result<void> slot_pool::make_namespaces(slot& s) {
  const auto uids = std::uint64_t{node_.uid_base} + std::uint64_t{s.number} * uids_per_slot;
  if (uids + uids_per_slot > std::numeric_limits<std::uint32_t>::max())
    return fail(errc::invalid_argument, "slot " + std::to_string(s.number) +
                                            " would have user ids over the largest one; lower "
                                            "node.uid_base");
  DSEC_TRY(const auto lease, host_.get());
  s.generation = lease.generation;
  return lease.client->make_slot(s.number, static_cast<std::uint32_t>(uids),
                                 node_.aether_uid_base + s.number);
}

result<void> slot_pool::give_back(slot& s) {
  // ENOENT: a sandbox took them over, or their launcher is gone.
  if (const auto lease = host_.current(); lease.client && lease.generation == s.generation) {
    auto dropped = lease.client->drop_slot(s.number);
    if (!dropped && dropped.error().code != errc::not_found &&
        dropped.error().code != errc::unavailable)
      return dropped;
  }
  DSEC_CHECK(trash_.discard(paths_.sandboxes() / unnamed_home(s.number)));
  DSEC_CHECK(groups_.remove_slot(s.groups.name, sys::after(remove_timeout)));
  free(s.number);
  return {};
}

result<void> slot_pool::refill() {
  DSEC_CHECK(base::failpoint::check("container.slots.refill"));
  const std::scoped_lock one(refill_mutex_);
  while (true) {
    {
      const std::scoped_lock lock(mutex_);
      if (draining_ || ready_.size() >= node_.slot_pool) return {};
      if (free_.empty() && doubtful_.empty()) return {};
    }
    DSEC_TRY(auto made, make_next());
    const std::scoped_lock lock(mutex_);
    ready_.push_back(std::move(made));
  }
}

result<void> slot_pool::drain() {
  {
    const std::scoped_lock lock(mutex_);
    draining_ = true;
  }
  // Waits for a refill that is under way, so that none of its slots comes after the last give_back.
  const std::scoped_lock one(refill_mutex_);
  std::deque<slot> ready;
  {
    const std::scoped_lock lock(mutex_);
    ready.swap(ready_);
  }
  std::optional<base::error> first;
  for (auto& s : ready) {
    const auto given = give_back(s);
    if (!given && !first) first = given.error();
  }
  if (first) return fail(std::move(*first));
  return {};
}

}  // namespace dsec::container

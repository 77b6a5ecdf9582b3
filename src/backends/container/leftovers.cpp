#include "backends/container/leftovers.hpp"

#include <fcntl.h>

#include <cerrno>
#include <charconv>
#include <set>
#include <thread>

#include "backends/container/home.hpp"
#include "backends/container/sandbox_parts.hpp"
#include "backends/sys/file.hpp"
#include "base/failpoint.hpp"
#include "base/log.hpp"

namespace dsec::container {
namespace {

using base::errc;
using base::fail;
using base::result;

constexpr auto death_timeout = std::chrono::seconds(10);
constexpr auto again_timeout = std::chrono::milliseconds(100);
/// The launcher says EBUSY until it has reaped an aether, which it does at once.
constexpr auto release_again = std::chrono::milliseconds(1);

struct taken_over {
  std::set<std::string> slots, ids;
};

taken_over what_is_ours(const sandbox_host& host) {
  taken_over ours;
  for (const auto& parts : host.sandboxes.all()) {
    ours.ids.insert(parts->spec.sandbox_id);
    const std::scoped_lock lock(parts->mutex);
    if (parts->place) ours.slots.insert(parts->place->groups.name);
  }
  return ours;
}

/// All at once, so that they die side by side. One that cannot be asked for is waited for in vain,
/// and named then.
void kill_slots(const sandbox_host& host, const std::set<std::string>& names) {
  for (const auto& name : names) {
    if (const auto group = host.groups.open_slot(name)) (void)group->slot.kill();
  }
}

/// The launcher forgets a sandbox when it has reaped its aether.
result<void> release(sandbox_host& host, const listed_sandbox& s, sys::deadline until) {
  if (!s.ended && !sys::wait_ended(s.pidfd.get(), until))
    return fail(errc::deadline_exceeded, "aether of '" + s.id + "' does not die");
  while (true) {
    DSEC_TRY(const bool released, host.launcher.release(s.id));
    if (released) return {};
    if (sys::remaining_ms(until) == 0)
      return fail(errc::deadline_exceeded, "the launcher does not let go of '" + s.id + "'");
    std::this_thread::sleep_for(release_again);
  }
}

/// A slot that was ready has namespaces at the launcher.
result<void> end_slot(sandbox_host& host, const std::string& name, sys::deadline until) {
  std::uint32_t number = 0;
  std::from_chars(name.data(), name.data() + name.size(), number);
  if (const auto group = host.groups.open_slot(name)) DSEC_CHECK(group->slot.end(until));
  if (const auto lease = host.launcher.current(); lease.client) {
    auto dropped = lease.client->drop_slot(number);
    if (!dropped && dropped.error().code != errc::not_found) return dropped;
  }
  DSEC_CHECK(host.groups.remove_slot(name, until));
  host.slots.free(number);
  return {};
}

/// Answers how many sandboxes had not been stopped. What cannot be moved away is in nobody's way:
/// no sandbox has its name, and a slot that is made anew takes its empty directory over.
result<std::size_t> drop_uppers(const sandbox_host& host, const std::set<std::string>& ours) {
  std::size_t found = 0;
  const auto discard = [&](const std::filesystem::path& path) {
    if (const auto gone = host.trash->discard(path); !gone)
      base::log::error("leftover_files_stay", {{"error", gone.error().to_string()}});
  };
  DSEC_TRY(const auto sandboxes, sys::open_directory(host.paths.sandboxes()));
  DSEC_TRY(const auto ids, sys::list_directory(sandboxes.get()));
  for (const auto& id : ids) {
    if (is_unnamed(id)) {
      discard(host.paths.sandbox(id));
      continue;
    }
    if (ours.contains(id) ||
        ::faccessat(sandboxes.get(), (id + "/upper").c_str(), F_OK, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    discard(host.paths.sandbox(id) / "upper");
    ++found;
  }
  return found;
}

}  // namespace

result<void> leftovers::end() {
  const std::scoped_lock one(mutex_);
  // What an earlier call has killed is dead by now, or stays yet.
  const auto until = sys::after(known_ ? again_timeout : death_timeout);
  if (!known_) DSEC_CHECK(kill_all());
  auto ended = end_rest(until);
  if (!known_) DSEC_CHECK(drop_files());
  known_ = true;
  return ended;
}

result<void> leftovers::kill_all() {
  // Before the groups are cleared, so that nothing new is started in them.
  DSEC_TRY(const auto launchers, host_.launcher.end_others());
  DSEC_TRY(const auto names, host_.groups.slots());
  slots_ = {names.begin(), names.end()};
  for (const auto& name : what_is_ours(host_).slots) slots_.erase(name);
  kill_slots(host_, slots_);
  if (launchers > 0 || !slots_.empty())
    base::log::warn("leftovers_killed", {{"launchers", launchers}, {"groups", slots_.size()}});
  return base::failpoint::check("container.leftovers.killed");
}

result<void> leftovers::end_rest(sys::deadline until) {
  std::string stays;
  const auto ended = [&](const result<void>& outcome) {
    if (!outcome) stays += (stays.empty() ? "" : "; ") + outcome.error().to_string();
    return outcome.has_value();
  };
  auto sandboxes = host_.left.take_rest();
  std::erase_if(sandboxes, [&](const auto& s) { return ended(release(host_, s, until)); });
  host_.left.fill(std::move(sandboxes));
  std::erase_if(slots_, [&](const auto& name) { return ended(end_slot(host_, name, until)); });
  ended(base::failpoint::check("container.leftovers.slots"));
  if (stays.empty()) return {};
  return fail(errc::unavailable, "of an earlier run there is still: " + stays);
}

result<void> leftovers::drop_files() {
  DSEC_TRY(const auto lost, drop_uppers(host_, what_is_ours(host_).ids));
  if (lost > 0) base::log::warn("leftover_files_dropped", {{"sandboxes", lost}});
  return {};
}

}  // namespace dsec::container

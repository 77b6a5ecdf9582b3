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

void note(const result<void>& outcome, const char* event) {
  if (!outcome) base::log::error(event, {{"error", outcome.error().to_string()}});
}

/// All at once, so that they die side by side. One that cannot be asked for is waited for in vain,
/// and named then.
void kill_slots(const sandbox_host& host, const std::vector<std::string>& names) {
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
    const auto dropped = lease.client->drop_slot(number);
    if (!dropped && dropped.error().code != errc::not_found) return dropped;
  }
  DSEC_CHECK(host.groups.remove_slot(name, until));
  host.slots.free(number);
  return {};
}

/// Answers how many sandboxes had not been stopped.
result<std::size_t> drop_uppers(const sandbox_host& host, const std::set<std::string>& ours) {
  std::size_t found = 0;
  DSEC_TRY(const auto sandboxes, sys::open_directory(host.paths.sandboxes()));
  DSEC_TRY(const auto ids, sys::list_directory(sandboxes.get()));
  for (const auto& id : ids) {
    if (is_unnamed(id)) {
      DSEC_CHECK(host.trash->discard(host.paths.sandbox(id)));
      continue;
    }
    if (ours.contains(id) ||
        ::faccessat(sandboxes.get(), (id + "/upper").c_str(), F_OK, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    DSEC_CHECK(host.trash->discard(host.paths.sandbox(id) / "upper"));
    ++found;
  }
  return found;
}

}  // namespace

result<void> end_leftovers(sandbox_host& host) {
  const auto until = sys::after(death_timeout);
  // Before the groups are cleared, so that nothing new is started in them.
  DSEC_TRY(const auto launchers, host.launcher.end_others());
  auto sandboxes = host.left.take_rest();
  const auto ours = what_is_ours(host);
  DSEC_TRY(auto names, host.groups.slots());
  std::erase_if(names, [&](const std::string& name) { return ours.slots.contains(name); });
  kill_slots(host, names);
  DSEC_CHECK(base::failpoint::check("container.leftovers.killed"));
  std::erase_if(sandboxes, [&](const listed_sandbox& s) {
    const auto released = release(host, s, until);
    note(released, "leftover_not_released");
    return released.has_value();
  });
  host.left.fill(std::move(sandboxes));  // for another try
  for (const auto& name : names) note(end_slot(host, name, until), "leftovers_stay");
  DSEC_CHECK(base::failpoint::check("container.leftovers.slots"));
  DSEC_TRY(const auto lost, drop_uppers(host, ours.ids));
  if (launchers > 0 || !names.empty() || lost > 0)
    base::log::warn("leftovers_cleared",
                    {{"launchers", launchers}, {"groups", names.size()}, {"sandboxes", lost}});
  return {};
}

}  // namespace dsec::container

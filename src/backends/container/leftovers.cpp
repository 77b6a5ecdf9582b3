#include "backends/container/leftovers.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "backends/container/home.hpp"
#include "backends/container/launcher_process.hpp"
#include "backends/sys/file.hpp"
#include "base/log.hpp"

namespace dsec::container {
namespace {

using base::fail;
using base::result;

constexpr auto death_timeout = std::chrono::seconds(10);

/// Before the groups are cleared, so that nothing new is started in them.
result<std::size_t> kill_launchers(const base::paths& paths) {
  DSEC_TRY(const auto launchers, find_launchers(paths.state()));
  for (const auto& process : launchers) {
    DSEC_CHECK(sys::signal_process(process.get(), SIGKILL));
    if (!sys::wait_ended(process.get(), sys::after(death_timeout)))
      return fail(base::errc::deadline_exceeded, "the launcher of an earlier run does not die");
  }
  ::unlink(paths.launcher_socket().c_str());
  return launchers.size();
}

/// Answers how many sandboxes had not been stopped.
result<std::size_t> drop_uppers(const base::paths& paths, trash& bin) {
  std::size_t found = 0;
  DSEC_TRY(const auto sandboxes, sys::open_directory(paths.sandboxes()));
  DSEC_TRY(const auto ids, sys::list_directory(sandboxes.get()));
  for (const auto& id : ids) {
    if (is_unnamed(id)) {
      DSEC_CHECK(bin.discard(paths.sandbox(id)));
      continue;
    }
    if (::faccessat(sandboxes.get(), (id + "/upper").c_str(), F_OK, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    DSEC_CHECK(bin.discard(paths.sandbox(id) / "upper"));
    ++found;
  }
  return found;
}

}  // namespace

result<void> clear_leftovers(const base::paths& paths, const cgroup_tree& groups, trash& bin) {
  DSEC_TRY(const auto launchers, kill_launchers(paths));
  DSEC_TRY(const auto slots, groups.slots());
  if (const auto cleared = groups.clear(sys::after(death_timeout)); !cleared)
    base::log::error("leftovers_stay", {{"error", cleared.error().to_string()}});
  DSEC_TRY(const auto lost, drop_uppers(paths, bin));
  if (launchers > 0 || !slots.empty() || lost > 0)
    base::log::warn("leftovers_cleared",
                    {{"launchers", launchers}, {"groups", slots.size()}, {"sandboxes", lost}});
  return {};
}

}  // namespace dsec::container

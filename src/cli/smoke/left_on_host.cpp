// What an instance has left, looked for in the kernel's own lists.
#include <thread>

#include "backends/container/hierarchies.hpp"
#include "backends/container/launcher_search.hpp"
#include "backends/sys/file.hpp"
#include "backends/sys/mountinfo.hpp"
#include "backends/sys/pidfd.hpp"
#include "cli/smoke/session.hpp"

namespace dsec::cli::smoke {
namespace {

using lines = std::vector<std::string>;

void find_launchers(const base::config& c, lines& left) {
  const auto found = container::find_launchers(c.state);
  if (!found) return left.push_back("processes cannot be listed: " + found.error().to_string());
  for (const auto& l : *found) left.push_back("process " + std::to_string(l.pid));
}

void find_groups(const base::config& c, lines& left) {
  const auto all = container::find_hierarchies();
  if (!all) return left.push_back("groups cannot be listed: " + all.error().to_string());
  const auto look = [&](const container::hierarchy& h) {
    const auto group = h.base() / c.node.instance;
    std::error_code bad;
    if (std::filesystem::exists(group, bad)) left.push_back("group " + group.string());
  };
  look(all->unified);
  for (const auto& h : all->legacy) look(h);
}

void find_mounts(const base::config& c, lines& left) {
  const auto text = sys::read_file("/proc/self/mountinfo");
  if (!text) return left.push_back("mounts cannot be listed");
  for (const auto& m : sys::parse_mountinfo(*text)) {
    if (m.mount_point.starts_with(c.state.string())) left.push_back("mount " + m.mount_point);
  }
}

lines look(const base::config& c) {
  lines left;
  find_launchers(c, left);
  find_groups(c, left);
  find_mounts(c, left);
  return left;
}

}  // namespace

std::vector<std::string> left_on_host(const base::config& config) {
  // A process that was killed is seen until it is reaped.
  constexpr std::chrono::seconds patience{5};
  constexpr std::chrono::milliseconds look_again{20};
  const auto until = sys::after(patience);
  auto left = look(config);
  while (!left.empty() && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(look_again);
    left = look(config);
  }
  return left;
}

}  // namespace dsec::cli::smoke

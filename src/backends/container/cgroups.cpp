#include "backends/container/cgroups.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>

#include "backends/sys/file.hpp"
#include "base/log.hpp"

namespace dsec::container {
namespace {

using base::errc;
using base::fail;
using base::fail_errno;
using base::result;
using sys::cgroup_dir;

/// Whose groups these are; root's alone to write, and gone with the group.
constexpr const char* owner_mark = "trusted.dsec.state";
constexpr const char* ids_mark = "trusted.dsec.ids";

result<void> claim(const cgroup_dir& group, const std::string& state) {
  char owner[4096];
  const auto n = ::fgetxattr(group.fd(), owner_mark, owner, sizeof owner);
  if (n >= 0) {
    const std::string_view name(owner, static_cast<std::size_t>(n));
    if (name == state) return {};
    return fail(errc::conflict, "control group " + group.path().string() +
                                    " belongs to the worker with state " + std::string(name) +
                                    ": give this one another node.instance");
  }
  if (errno != ENODATA) return fail_errno("cannot read the owner of " + group.path().string());
  if (::fsetxattr(group.fd(), owner_mark, state.data(), state.size(), 0) != 0)
    return fail_errno("cannot mark " + group.path().string() + " as ours");
  return {};
}

/// A group that stands already and carries no mark was made by somebody else.
result<void> refuse_foreign(const cgroup_dir& base, const std::string& name) {
  const auto group = base.open_child(name);
  if (!group || ::fgetxattr(group->fd(), owner_mark, nullptr, 0) >= 0) return {};
  return fail(errc::conflict, "control group " + group->path().string() +
                                  " exists and is not ours: choose another node.instance");
}

/// A version 2 group that is not the real root cannot hold processes and hand controllers down
/// (cgroups(7), "no internal processes"): in a container, or in a delegated unit, they move to a
/// leaf.
result<void> move_processes_to_leaf(const cgroup_dir& base, const std::string& leaf_name) {
  DSEC_TRY(const auto leaf, base.make_child(leaf_name));
  DSEC_TRY(const auto processes, base.read("cgroup.procs"));
  for (std::string_view rest = processes; !rest.empty();) {
    const auto pid = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), pid.size() + 1));
    auto moved = leaf.write("cgroup.procs", pid);
    if (!moved && moved.error().sys_errno != ESRCH) return moved;
  }
  base::log::info("processes_moved_to_leaf_group", {{"group", leaf.path().native()}});
  return {};
}

result<void> hand_down(const cgroup_dir& group, const std::vector<std::string>& controllers) {
  std::string all;
  for (const auto& c : controllers) all += (all.empty() ? "+" : " +") + c;
  if (all.empty()) return {};
  return group.write("cgroup.subtree_control", all);
}

/// Ownership of one file in a group directory; empty name: the directory itself.
result<void> give(int group, const char* file, uid_t user, gid_t gid) {
  if (::fchownat(group, file, user, gid, AT_EMPTY_PATH) != 0)
    return fail_errno(std::string("cannot delegate '") + file + "' of a group");
  return {};
}

/// Cloning into a group needs write permission on its cgroup.procs and on that of the common
/// ancestor. It is given to aether's group id, which commands do not have; never to all.
result<void> let_clone_into(int group, uid_t user, gid_t gid) {
  DSEC_CHECK(give(group, "cgroup.procs", user, gid));
  if (::fchmodat(group, "cgroup.procs", 0664, 0) != 0)
    return fail_errno("cannot delegate 'cgroup.procs' of a group");
  return {};
}

bool offers(const hierarchy& h, std::string_view controller) {
  return std::find(h.controllers.begin(), h.controllers.end(), controller) != h.controllers.end();
}

const char* below_slot(group_level level) {
  switch (level) {
    case group_level::init:
      return "/init/";
    case group_level::cmd:
      return "/cmd/";
    case group_level::slot:
      break;
  }
  return "/";
}

void collect(result<void> outcome, std::optional<base::error>& first) {
  if (outcome) return;
  if (!first)
    first = outcome.error();
  else
    first->message += "; " + outcome.error().message;
}

}  // namespace

result<cgroup_tree> cgroup_tree::open(const std::string& instance,
                                      const std::filesystem::path& state) {
  DSEC_TRY(auto found, find_hierarchies());
  cgroup_tree tree(instance);
  DSEC_TRY(const auto unified_base, cgroup_dir::open(found.unified.base()));
  DSEC_CHECK(refuse_foreign(unified_base, instance));
  if (auto handed = hand_down(unified_base, found.unified.controllers); !handed) {
    if (handed.error().sys_errno != EBUSY) return fail(handed.error());
    DSEC_CHECK(move_processes_to_leaf(unified_base, instance + host_leaf_suffix));
    DSEC_CHECK(hand_down(unified_base, found.unified.controllers));
  }
  DSEC_CHECK(build_instance_groups(found, instance));
  const auto enter = [&](const hierarchy& h) -> result<place> {
    DSEC_TRY(auto base, cgroup_dir::open(h.base()));
    DSEC_TRY(auto group, base.open_child(instance));
    return place{h, std::move(base), std::move(group)};
  };
  DSEC_TRY(tree.unified_, enter(found.unified));
  DSEC_CHECK(claim(tree.unified_.instance, state));
  DSEC_CHECK(hand_down(tree.unified_.instance, found.unified.controllers));
  // Clones go from <slot>/init to <slot>/cmd/…: their common ancestor is the slot, not this group.
  for (const auto& h : found.legacy) {
    DSEC_TRY(auto p, enter(h));
    // A memory group is dear: it has a kilobyte for every 64 superblocks of the whole host, and
    // each sandbox brings six (expand_shrinker_info() in the kernel's mm/shrinker.c).
    p.flat = !offers(h, "cpu");
    tree.legacy_.push_back(std::move(p));
  }
  tree.private_mount_ = std::move(found.private_mount);
  return tree;
}

result<slot_groups> cgroup_tree::make_slot(std::uint32_t number, std::uint32_t aether) const {
  slot_groups groups;
  groups.name = std::to_string(number);
  if (::mkdirat(unified_.instance.fd(), groups.name.c_str(), 0755) != 0)
    return fail_errno("cannot make group '" + groups.name + "'");
  const auto name = groups.name;
  auto filled = fill_slot(std::move(groups), aether);
  if (!filled) {
    const auto undone = remove_slot(name, sys::after(std::chrono::seconds(1)));
    if (!undone) base::log::warn("group_left", {{"error", undone.error().to_string()}});
  }
  return filled;
}

result<slot_groups> cgroup_tree::open_slot(const std::string& name) const {
  slot_groups groups;
  groups.name = name;
  DSEC_TRY(groups.slot, unified_.instance.open_child(groups.name));
  return groups;
}

result<slot_groups> cgroup_tree::fill_slot(slot_groups groups, std::uint32_t aether) const {
  DSEC_CHECK(fill_unified(groups, aether));
  for (const auto& p : legacy_) DSEC_CHECK(fill_legacy(p, groups));
  return groups;
}

result<void> cgroup_tree::fill_unified(slot_groups& groups, std::uint32_t aether) const {
  DSEC_TRY(groups.slot, unified_.instance.open_child(groups.name));
  DSEC_CHECK(hand_down(groups.slot, unified_.where.controllers));
  DSEC_CHECK(let_clone_into(groups.slot.fd(), 0, aether));
  DSEC_TRY(auto init, groups.slot.make_child("init"));
  DSEC_TRY(const auto cmd, groups.slot.make_child("cmd"));
  DSEC_CHECK(give(cmd.fd(), "", aether, aether));
  DSEC_CHECK(let_clone_into(cmd.fd(), aether, aether));
  // Within a sandbox aether and its spawner come first, whatever its commands do.
  // Among its commands each has a share of its own, so that a fork bomb starves only itself.
  if (home_of("cpu") == &unified_) {
    DSEC_CHECK(init.write("cpu.weight", "1000"));
    DSEC_CHECK(hand_down(cmd, {"cpu"}));
  }
  // Each command's group is what dies when memory is short, and says so itself (memory.oom.group).
  if (home_of("memory") == &unified_) {
    DSEC_CHECK(hand_down(cmd, {"memory"}));
    DSEC_TRY(groups.fds.oom, sys::open_at(cmd.fd(), "memory.events", O_RDONLY));
    groups.fds.oom_version = 1;
  }
  groups.fds.init = std::move(init).take_fd();
  return {};
}

result<void> cgroup_tree::fill_legacy(const place& p, slot_groups& groups) {
  DSEC_TRY(const auto slot, p.instance.make_child(groups.name));
  if (!p.flat) {
    DSEC_TRY(const auto init, slot.make_child("init"));
    DSEC_CHECK(init.write("cpu.shares", "10240"));
    DSEC_CHECK(slot.make_child("cmd"));
  }
  const auto open = [&](group_level level, const char* name, int flags) {
    return sys::open_at(p.instance.fd(), p.file(groups.name, level, name), flags);
  };
  if (offers(p.where, "memory")) {
    DSEC_TRY(groups.fds.oom, open(group_level::cmd, "memory.oom_control", O_RDONLY));
    groups.fds.oom_version = 0;
  }
  DSEC_TRY(auto init_tasks, open(group_level::init, "tasks", O_WRONLY));
  DSEC_TRY(auto cmd_tasks, open(group_level::cmd, "tasks", O_WRONLY));
  groups.fds.init_tasks.push_back(std::move(init_tasks));
  groups.fds.cmd_tasks.push_back(std::move(cmd_tasks));
  return {};
}

std::string cgroup_tree::place::file(const std::string& slot, group_level level,
                                     const std::string& name) const {
  if (!flat) return slot + below_slot(level) + name;
  return level == group_level::init ? name : slot + "/" + name;
}

const cgroup_tree::place* cgroup_tree::home_of(std::string_view controller) const {
  const auto holds = [&](const place& p) { return offers(p.where, controller); };
  if (holds(unified_)) return &unified_;
  const auto found = std::find_if(legacy_.begin(), legacy_.end(), holds);
  return found == legacy_.end() ? nullptr : &*found;
}

result<void> cgroup_tree::set_limits(slot_groups& groups, const backends::limits& l) const {
  const auto* before = groups.applied ? &*groups.applied : nullptr;
  for (const std::string controller : needed_controllers) {
    const auto* home = home_of(controller);
    for (const auto& k : limit_knobs(controller, home->where.version, l, before)) {
      auto written = home->instance.write(home->file(groups.name, k.level, k.file), k.value);
      if (!written && !(k.optional && written.error().sys_errno == ENOENT)) return written;
    }
  }
  groups.applied = l;
  return {};
}

result<backends::usage> cgroup_tree::usage(const slot_groups& groups) const {
  backends::usage u;
  // cpu.stat counts in every version 2 group, even where the cpu controller is on version 1.
  DSEC_TRY(const auto cpu, groups.slot.read("cpu.stat"));
  DSEC_TRY(u.cpu_usec, sys::flat_keyed(cpu, "usage_usec"));
  const auto* pids = home_of("pids");
  DSEC_TRY(const auto tasks,
           pids->instance.read_number(pids->file(groups.name, group_level::cmd, "pids.current")));
  u.tasks = static_cast<std::uint32_t>(tasks);
  const auto* memory = home_of("memory");
  const bool legacy = memory->where.version == 1;
  DSEC_TRY(const auto bytes,
           memory->instance.read_number(groups.name +
                                        (legacy ? "/memory.usage_in_bytes" : "/memory.current")));
  DSEC_TRY(const auto stat, memory->instance.read(groups.name + "/memory.stat"));
  DSEC_TRY(const auto idle,
           sys::flat_keyed(stat, legacy ? "total_inactive_file" : "inactive_file"));
  u.memory_bytes = bytes - std::min(bytes, idle);  // page cache that goes when asked to is not use
  return u;
}

result<void> cgroup_tree::remove_slot(const std::string& name, sys::deadline until) const {
  std::optional<base::error> first;
  for (const auto& p : legacy_) collect(p.instance.remove_child(name, until), first);
  collect(unified_.instance.remove_child(name, until), first);
  if (first) return fail(*first);
  return {};
}

result<void> cgroup_tree::claim_ids(const std::string& ids, bool live) const {
  const int group = unified_.instance.fd();
  char text[128];
  const auto n = ::fgetxattr(group, ids_mark, text, sizeof text);
  const std::string before(text, n > 0 ? static_cast<std::size_t>(n) : 0);
  if (live && n > 0 && before != ids)
    return fail(errc::conflict, "sandboxes of an earlier run live with the user ids " + before +
                                    ", now they would be " + ids +
                                    ": end them before node.uid_base or node.aether_uid_base "
                                    "is changed");
  if (before != ids && ::fsetxattr(group, ids_mark, ids.data(), ids.size(), 0) != 0)
    return fail_errno("cannot mark " + unified_.instance.path().string() + " with its user ids");
  return {};
}

result<std::vector<std::string>> cgroup_tree::slots() const {
  std::vector<std::string> names;
  const auto add = [&](const place& p) -> result<void> {
    DSEC_TRY(const auto entries, sys::list_directory(p.instance.fd()));
    for (const auto& entry : entries) {
      const bool number =
          std::all_of(entry.begin(), entry.end(), [](char c) { return c >= '0' && c <= '9'; });
      if (number && std::find(names.begin(), names.end(), entry) == names.end())
        names.push_back(entry);
    }
    return {};
  };
  DSEC_CHECK(add(unified_));
  for (const auto& p : legacy_) DSEC_CHECK(add(p));
  return names;
}

result<void> cgroup_tree::clear(sys::deadline until) const {
  DSEC_CHECK(unified_.instance.kill());
  std::optional<base::error> first;
  collect(unified_.instance.wait_empty(until), first);
  DSEC_TRY(const auto names, slots());
  for (const auto& name : names) collect(remove_slot(name, until), first);
  if (first) return fail(*first);
  return {};
}

result<void> cgroup_tree::remove(sys::deadline until) const {
  std::optional<base::error> first;
  for (const auto& p : legacy_) collect(p.base.remove_child(name_, until), first);
  collect(unified_.base.remove_child(name_, until), first);
  if (first) return fail(*first);
  return {};
}

}  // namespace dsec::container

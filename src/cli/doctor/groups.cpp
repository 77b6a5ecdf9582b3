// What control groups can do besides what every sandbox needs: freezing, giving memory back.
#include <cerrno>
#include <chrono>
#include <thread>

#include "backends/container/trial_slot.hpp"
#include "cli/doctor/capability.hpp"

namespace dsec::cli::doctor {
namespace {

using base::errc;
using base::fail;
using base::result;
using container::cgroup_tree;
using container::slot_groups;

constexpr std::chrono::seconds patience{2};
constexpr std::chrono::milliseconds look_again{2};

result<void> wait_frozen(const sys::cgroup_dir& group, std::uint64_t wanted) {
  const auto until = sys::after(patience);
  while (true) {
    DSEC_TRY(const auto events, group.read("cgroup.events"));
    DSEC_TRY(const auto frozen, sys::flat_keyed(events, "frozen"));
    if (frozen == wanted) return {};
    if (std::chrono::steady_clock::now() > until)
      return fail(errc::deadline_exceeded, "the group does not change between frozen and thawed");
    std::this_thread::sleep_for(look_again);
  }
}

result<std::string> freeze(const cgroup_tree&, slot_groups& slot) {
  for (const std::uint64_t wanted : {1U, 0U}) {
    DSEC_CHECK(slot.slot.write("cgroup.freeze", std::to_string(wanted)));
    DSEC_CHECK(wait_frozen(slot.slot, wanted));
  }
  return std::string("froze a group and thawed it");
}

result<std::string> reclaim(const cgroup_tree&, slot_groups& slot) {
  if (!slot.slot.has("memory.reclaim")) {
    return fail(errc::unsupported, slot.slot.has("memory.max")
                                       ? "this kernel has no memory.reclaim"
                                       : "memory is not a controller of version 2 here");
  }
  // Nothing is charged to a fresh group: EAGAIN is the kernel's word for "less than that".
  const auto asked = slot.slot.write("memory.reclaim", "4096");
  if (!asked && asked.error().sys_errno != EAGAIN) return fail(asked.error());
  return std::string("asked a group for memory");
}

}  // namespace

findings look_at_groups(const place& p) {
  auto node = p.node;
  node.instance += "-groups";
  const auto try_slot = [&](const container::slot_trial& use) {
    return container::with_trial_slot(node, p.scratch, use);
  };
  return {
      judge({"control groups", "freezer", false, "run Linux 5.2 or newer with cgroup2 mounted",
             "everything but pausing sandboxes"},
            try_slot(freeze)),
      judge({"control groups", "memory.reclaim", false,
             "run Linux 5.19 or newer, booted with systemd.unified_cgroup_hierarchy=1",
             "everything; memory of idle sandboxes comes back under pressure only"},
            try_slot(reclaim)),
  };
}

}  // namespace dsec::cli::doctor

// The control groups of one instance, the same names in every hierarchy that is needed:
//
//   <base>/<instance>/<slot>/        v2: killed and watched as a whole; weight of the sandbox
//                           init/    aether and its spawner: a CPU quota above the commands', else
//                                    no limits, so that they work when commands hit theirs
//                           cmd/     commands: memory, CPU and process limits; v2 part handed to
//                                    aether
//
// A version 1 hierarchy that gives aether no share of its own (all but cpu's) has one group per
// slot, <instance>/<slot>, for the commands; aether and its spawner stay in <instance>.
//
// The memory limit of a sandbox is applied here and nowhere else (limit_knobs.cpp has the files and
// values). cgroup_tree is owned by the backend and thread-safe after open(); all calls block
// shortly on the kernel.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "backends/container/hierarchies.hpp"
#include "backends/container/limit_knobs.hpp"
#include "backends/sys/cgroup_dir.hpp"

namespace dsec::container {

/// What the launcher needs to put a new aether into its groups; open only until the sandbox is
/// made.
struct group_fds {
  sys::unique_fd init;  // v2, clone target
  sys::unique_fd oom;   // of `cmd`; read-only
  std::uint32_t oom_version =
      2;  // launch_create::oom_v2: 1 = memory.events, 0 = memory.oom_control
  std::vector<sys::unique_fd> init_tasks;  // v1
  std::vector<sys::unique_fd> cmd_tasks;
};

/// The groups of one slot.
struct slot_groups {
  std::string name;
  sys::cgroup_dir slot;  // v2
  group_fds fds;
  std::optional<backends::limits> applied;
};

class cgroup_tree {
 public:
  /// Finds hierarchies and makes the instance's groups. A group of that name which belongs to
  /// another state directory is errc::conflict; one left by an earlier run of this state directory
  /// is taken over as it is.
  static base::result<cgroup_tree> open(const std::string& instance,
                                        const std::filesystem::path& state);

  /// Makes fresh groups; a leftover of the same name is an error. `aether` is the uid and gid they
  /// are delegated to.
  [[nodiscard]] base::result<slot_groups> make_slot(std::uint32_t number,
                                                    std::uint32_t aether) const;
  /// The groups of a sandbox that lives already, with limits as they are.
  [[nodiscard]] base::result<slot_groups> open_slot(const std::string& name) const;
  [[nodiscard]] base::result<void> set_limits(slot_groups& groups, const backends::limits& l) const;
  [[nodiscard]] base::result<backends::usage> usage(const slot_groups& groups) const;
  /// Removes the groups in every hierarchy; they must be empty or become so before the deadline.
  [[nodiscard]] base::result<void> remove_slot(const std::string& name, sys::deadline until) const;

  /// Writes down which user ids the slots get. errc::conflict when sandboxes that `live` have got
  /// others from an earlier run: new ones could get the same.
  [[nodiscard]] base::result<void> claim_ids(const std::string& ids, bool live) const;
  /// Names of slots that exist now.
  [[nodiscard]] base::result<std::vector<std::string>> slots() const;
  /// Kills whatever runs in any slot and removes all slots; those in which something does not die
  /// stay and are named.
  [[nodiscard]] base::result<void> clear(sys::deadline until) const;
  /// Removes the instance's own groups, which must have no slots left.
  [[nodiscard]] base::result<void> remove(sys::deadline until) const;

 private:
  struct place {
    hierarchy where;
    sys::cgroup_dir base, instance;
    bool flat = false;  // no init/ and cmd/ below a slot

    /// Name of a file of a slot, from `instance`.
    [[nodiscard]] std::string file(const std::string& slot, group_level level,
                                   const std::string& name) const;
  };
  explicit cgroup_tree(std::string name) : name_(std::move(name)) {}
  [[nodiscard]] base::result<slot_groups> fill_slot(slot_groups groups, std::uint32_t aether) const;
  [[nodiscard]] base::result<void> fill_unified(slot_groups& groups, std::uint32_t aether) const;
  static base::result<void> fill_legacy(const place& p, slot_groups& groups);
  [[nodiscard]] const place* home_of(std::string_view controller) const;

  std::string name_;
  sys::unique_fd private_mount_;
  place unified_;
  std::vector<place> legacy_;
};

}  // namespace dsec::container

// Where on this host control groups of ours can stand: on version 1, version 2 and hybrid set-ups
// alike. Blocking, called at start-up only. `arrange` is pure but for reads below `fs_root`, so
// that tests can give it any host; find_hierarchies() feeds it with what libcgroup and /proc/self
// say about this one.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "backends/sys/unique_fd.hpp"
#include "base/result.hpp"

namespace dsec::container {

/// The controllers without which a sandbox cannot be limited.
inline constexpr const char* needed_controllers[] = {"cpu", "memory", "pids"};

/// Processes that stood in a group which is ours to divide are moved to its child
/// `<instance>` + this.
inline constexpr const char* host_leaf_suffix = "-host";

struct hierarchy {
  int version = 2;
  std::vector<std::string> controllers;  // those of needed_controllers that are limited here
  std::filesystem::path mount;
  std::string own;  // group below `mount` that is ours to divide; empty = the mount's root itself

  [[nodiscard]] std::filesystem::path base() const { return own.empty() ? mount : mount / own; }
};

struct hierarchies {
  hierarchy unified;              // version 2: kill, freeze, clone target; perhaps also limits
  std::vector<hierarchy> legacy;  // version 1 hierarchies that hold needed controllers
  sys::unique_fd private_mount;   // holds version 2 when it was mounted nowhere
};

/// Controller -> mount point, as libcgroup reports it.
using controller_mounts = std::map<std::string, std::filesystem::path, std::less<>>;

/// Fails with errc::unsupported naming the controllers that are nowhere. `unified.mount` stays
/// empty when version 2 is not mounted.
base::result<hierarchies> arrange(const controller_mounts& mounts, std::string_view mountinfo,
                                  std::string_view membership,
                                  const std::filesystem::path& fs_root = "/");

base::result<hierarchies> find_hierarchies();

/// Makes the group `name` below the base of every hierarchy through libcgroup and checks that it is
/// there.
base::result<void> build_instance_groups(const hierarchies& all, const std::string& name);

}  // namespace dsec::container

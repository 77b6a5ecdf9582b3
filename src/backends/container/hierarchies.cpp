#include "backends/container/hierarchies.hpp"

#include <libcgroup.h>
#include <sys/xattr.h>

#include <algorithm>
#include <memory>
#include <mutex>

#include "backends/sys/cgroup_dir.hpp"
#include "backends/sys/file.hpp"
#include "backends/sys/mount.hpp"
#include "backends/sys/mountinfo.hpp"

namespace dsec::container {
namespace {

using base::errc;
using base::fail;
using base::result;
namespace fs = std::filesystem;

/// Path of an absolute `path` of the host below fs_root.
fs::path below(const fs::path& fs_root, const fs::path& path) {
  return fs_root / path.relative_path();
}

/// systemd marks groups it has handed over (Delegate=yes) with one of these.
bool is_delegated(const fs::path& group) {
  for (const char* name : {"trusted.delegate", "user.delegate"}) {
    char value = 0;
    if (::getxattr(group.c_str(), name, &value, 1) == 1 && value == '1') return true;
  }
  return false;
}

/// Our own group when it was delegated to us, or the one above when we come from a process that an
/// instance has moved out of its way there; else the root of the mount, where groups of ours stand
/// beside those of other managers. (Version 1 knows no delegation marks.)
std::string delegated_group(const fs::path& mount, std::string_view membership) {
  for (const auto& group : sys::parse_membership(membership)) {
    if (group.hierarchy != 0) continue;
    auto name = fs::path(group.path).relative_path();
    if (name.native().ends_with(host_leaf_suffix)) name = name.parent_path();
    if (!name.empty() && is_delegated(mount / name)) return name;
  }
  return {};
}

result<bool> has_controller(const fs::path& group, std::string_view controller) {
  DSEC_TRY(const auto text, sys::read_file(group / "cgroup.controllers"));
  const auto padded = " " + text.substr(0, text.find('\n')) + " ";
  return padded.find(" " + std::string(controller) + " ") != std::string::npos;
}

/// The legacy hierarchy at `mount`, or nullptr when the host has none there.
hierarchy* legacy_at(hierarchies& all, const std::vector<sys::mount_entry>& mounts,
                     const fs::path& at, const fs::path& fs_root) {
  const auto found = std::find_if(mounts.begin(), mounts.end(), [&](const auto& m) {
    return m.type == "cgroup" && m.mount_point == at;
  });
  if (found == mounts.end()) return nullptr;
  const auto path = below(fs_root, at);
  for (auto& h : all.legacy) {
    if (h.mount == path) return &h;  // cpu and cpuacct, say, are often mounted together
  }
  all.legacy.push_back({1, {}, path, {}});
  return &all.legacy.back();
}

base::error libcgroup_error(const std::string& what, int code) {
  return {errc::unsupported, what + ": libcgroup says '" + ::cgroup_strerror(code) + "'", 0};
}

/// libcgroup's table of mounts is filled once per process.
result<controller_mounts> libcgroup_mounts() {
  static std::once_flag once;
  static int state = 0;
  std::call_once(once, [] { state = ::cgroup_init(); });
  if (state != 0) return fail(libcgroup_error("cannot find control groups", state));
  controller_mounts mounts;
  void* handle = nullptr;
  cgroup_mount_point point{};
  for (int r = ::cgroup_get_controller_begin(&handle, &point); r == 0;
       r = ::cgroup_get_controller_next(&handle, &point))
    mounts.emplace(point.name, point.path);
  ::cgroup_get_controller_end(&handle);
  return mounts;
}

/// The group `name` in all hierarchies whose base has the same name below its mount.
result<void> build(const std::string& name, const std::vector<std::string>& controllers) {
  if (controllers.empty()) return {};
  const std::unique_ptr<cgroup, void (*)(cgroup*)> group(::cgroup_new_cgroup(name.c_str()),
                                                         [](cgroup* g) { ::cgroup_free(&g); });
  if (!group) return fail(errc::internal, "cannot describe group '" + name + "'");
  for (const auto& c : controllers) {
    if (::cgroup_add_controller(group.get(), c.c_str()) == nullptr)
      return fail(errc::unsupported, "libcgroup does not know controller '" + c + "'");
  }
  // Without `ignore_ownership` it gives all that an existing group holds to root, the groups of
  // sandboxes that run on from an earlier dsecd included.
  constexpr int ignore_ownership = 1;
  if (const int r = ::cgroup_create_cgroup(group.get(), ignore_ownership); r != 0)
    return fail(libcgroup_error("cannot make group '" + name + "'", r));
  return {};
}

}  // namespace

result<hierarchies> arrange(const controller_mounts& mounts, std::string_view mountinfo,
                            std::string_view membership, const fs::path& fs_root) {
  hierarchies all;
  const auto entries = sys::parse_mountinfo(mountinfo);
  const auto unified = std::find_if(entries.begin(), entries.end(),
                                    [](const auto& m) { return m.type == "cgroup2"; });
  if (unified != entries.end()) {
    all.unified.mount = below(fs_root, unified->mount_point);
    all.unified.own = delegated_group(all.unified.mount, membership);
  }
  std::string missing;
  for (const std::string controller : needed_controllers) {
    const auto at = mounts.find(controller);
    hierarchy* home = at == mounts.end() ? nullptr : legacy_at(all, entries, at->second, fs_root);
    if (home == nullptr && !all.unified.mount.empty()) {
      DSEC_TRY(const auto here, has_controller(all.unified.base(), controller));
      if (here) home = &all.unified;
    }
    if (home != nullptr)
      home->controllers.push_back(controller);
    else
      missing += (missing.empty() ? "" : ", ") + controller;
  }
  if (!missing.empty())
    return fail(errc::unsupported, "no control group hierarchy offers: " + missing);
  return all;
}

result<hierarchies> find_hierarchies() {
  DSEC_TRY(const auto mounts, libcgroup_mounts());
  DSEC_TRY(const auto mountinfo, sys::read_file("/proc/self/mountinfo"));
  DSEC_TRY(const auto membership, sys::read_file("/proc/self/cgroup"));
  DSEC_TRY(auto all, arrange(mounts, mountinfo, membership));
  if (all.unified.mount.empty()) {
    // A pure version 1 host: version 2 can still be had, without controllers, for kill and freeze.
    DSEC_TRY(all.private_mount, sys::detached_mount("cgroup2", "dsec"));
    all.unified.mount = "/proc/self/fd/" + std::to_string(all.private_mount.get());
  }
  return all;
}

result<void> build_instance_groups(const hierarchies& all, const std::string& name) {
  std::vector<std::string> legacy;
  for (const auto& h : all.legacy)
    legacy.insert(legacy.end(), h.controllers.begin(), h.controllers.end());
  DSEC_CHECK(build(name, legacy));
  if (!all.unified.controllers.empty())
    DSEC_CHECK(build(fs::path(all.unified.own) / name, all.unified.controllers));
  for (const auto& h : all.legacy) {
    auto made = sys::cgroup_dir::open(h.base() / name);
    if (!made) return fail(made.error());
  }
  // Without controllers libcgroup has no name for version 2: made directly.
  DSEC_TRY(const auto base, sys::cgroup_dir::open(all.unified.base()));
  DSEC_TRY(const auto made, base.make_child(name));
  if (!made.has("cgroup.kill"))
    return fail(errc::unsupported, "control groups have no cgroup.kill: Linux 5.14 is needed");
  return {};
}

}  // namespace dsec::container

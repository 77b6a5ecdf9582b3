#include "guest/launcher/layers.hpp"

#include <dirent.h>
#include <linux/stat.h>
#include <stdio.h>

#include <algorithm>

#include "guest/launcher/log.hpp"
#include "guest/launcher/loop_device.hpp"
#include "guest/launcher/mounts.hpp"

namespace dsec::launcher {
namespace {

constexpr std::string_view layers_dir = "/layers/";

bool valid_name(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  });
}

bool is_mount_point(const std::string& path) {
  struct statx info {};
  return sys::call(SYS_statx, AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW, 0, &info) == 0 &&
         (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

/// -ENOTBLK: this kernel wants a block device.
status mount_erofs(const char* source, fd& mount) {
  const fd context(sys::call(SYS_fsopen, "erofs", FSOPEN_CLOEXEC));
  LAUNCH_TRY("erofs: fsopen", context.get());
  const auto configure = [&](unsigned command, const char* key, const char* value) {
    return sys::call(SYS_fsconfig, context.get(), command, key, value, 0);
  };
  // Without "ro" a block device would be opened for writing, which a read-only loop device refuses.
  LAUNCH_TRY("erofs: ro", configure(FSCONFIG_SET_FLAG, "ro", nullptr));
  LAUNCH_TRY("erofs: source", configure(FSCONFIG_SET_STRING, "source", source));
  const long created = configure(FSCONFIG_CMD_CREATE, nullptr, nullptr);
  if (created < 0) {
    if (created != -ENOTBLK) log_fs_messages(context.get());
    return failed("erofs: create", created);
  }
  mount = fd(
      sys::call(SYS_fsmount, context.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NODEV));
  LAUNCH_TRY("erofs: fsmount", mount.get());
  return {};
}

status mount_image(int image, fd& mount) {
  char source[32];
  snprintf(source, sizeof source, "/proc/self/fd/%d", image);
  const status from_file = mount_erofs(source, mount);
  if (from_file.error != ENOTBLK) return from_file;
  loop_device device;
  if (status s = make_loop_device(image, device); !s.ok()) return s;
  return mount_erofs(device.path, mount);
}

}  // namespace

status layer_table::load() {
  DIR* dir = opendir(layers_dir.data());
  if (dir == nullptr) return {"layers: open", errno};
  while (const dirent* entry = readdir(dir)) {
    if (!valid_name(entry->d_name)) continue;
    const std::string path = std::string(layers_dir) + entry->d_name;
    if (is_mount_point(path)) layers_[entry->d_name] = layer{path};
  }
  closedir(dir);
  return {};
}

status layer_table::attach(std::string_view name, int image) {
  if (!valid_name(name)) return {"name", EINVAL};
  if (find(name) != nullptr) return {};
  fd mount;
  if (status s = mount_image(image, mount); !s.ok()) return s;
  const std::string path = std::string(layers_dir).append(name);
  const long made = sys::call(SYS_mkdirat, AT_FDCWD, path.c_str(), 0755);
  if (made < 0 && made != -EEXIST) return failed("mkdir", made);
  LAUNCH_TRY("attach", launcher::attach(mount.get(), AT_FDCWD, path.c_str()));
  layers_.emplace(name, layer{path});
  return {};
}

status layer_table::detach(std::string_view name) {
  const auto it = layers_.find(name);
  if (it == layers_.end()) return {"name", ENOENT};
  if (it->second.users > 0) return {"in use", EBUSY};
  LAUNCH_TRY("umount", sys::call(SYS_umount2, it->second.path.c_str(), UMOUNT_NOFOLLOW));
  sys::call(SYS_unlinkat, AT_FDCWD, it->second.path.c_str(), AT_REMOVEDIR);
  layers_.erase(it);
  return {};
}

layer* layer_table::find(std::string_view name) {
  const auto it = layers_.find(name);
  return it == layers_.end() ? nullptr : &it->second;
}

status layer_table::hold(const names& wanted, std::uint32_t count, std::vector<layer*>& held) {
  std::vector<layer*> found;
  for (std::uint32_t i = 0; i < count; ++i) {
    found.push_back(find(wanted[i]));
    if (found.back() == nullptr) return {"not attached", ENOENT};
  }
  for (layer* each : found) ++each->users;
  held = std::move(found);
  return {};
}

void layer_table::give_back(std::vector<layer*>& held) {
  for (layer* each : held) --each->users;
  held.clear();
}

}  // namespace dsec::launcher

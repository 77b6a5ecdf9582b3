#include "guest/launcher/mounts.hpp"

#include "guest/launcher/log.hpp"

namespace dsec::launcher {

void log_fs_messages(int context) {
  char text[256];
  for (;;) {
    const long n = sys::call(SYS_read, context, text, sizeof text - 1);
    if (n <= 0) return;
    text[n] = '\0';
    log_kernel_message(text);
  }
}

status make_fs(const char* type, std::initializer_list<fs_option> options, unsigned attributes,
               fd& mount) {
  const fd context(sys::call(SYS_fsopen, type, FSOPEN_CLOEXEC));
  LAUNCH_TRY(type, context.get());
  for (const auto& o : options) {
    const auto command = o.value == nullptr ? FSCONFIG_SET_FLAG : FSCONFIG_SET_STRING;
    LAUNCH_TRY(type, sys::call(SYS_fsconfig, context.get(), command, o.key, o.value, 0));
  }
  LAUNCH_TRY(type,
             sys::call(SYS_fsconfig, context.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0));
  mount = fd(sys::call(SYS_fsmount, context.get(), FSMOUNT_CLOEXEC, attributes));
  LAUNCH_TRY(type, mount.get());
  return {};
}

fd clone_mount(int dir, const char* path) {
  const unsigned flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_SYMLINK_NOFOLLOW |
                         (*path == '\0' ? AT_EMPTY_PATH : 0U);
  return fd(sys::call(SYS_open_tree, dir, path, flags));
}

long map_ids(int mount, int user_namespace, unsigned attributes) {
  mount_attr change{};
  change.attr_set = MOUNT_ATTR_IDMAP | attributes;
  change.userns_fd = static_cast<unsigned>(user_namespace);
  return sys::call(SYS_mount_setattr, mount, "", AT_EMPTY_PATH, &change, sizeof change);
}

long set_attributes(int mount, unsigned set, unsigned clear) {
  mount_attr change{};
  change.attr_set = set;
  change.attr_clr = clear;
  return sys::call(SYS_mount_setattr, mount, "", AT_EMPTY_PATH, &change, sizeof change);
}

long attach(int mount, int dir, const char* path) {
  return sys::call(SYS_move_mount, mount, "", dir, path, MOVE_MOUNT_F_EMPTY_PATH);
}

}  // namespace dsec::launcher

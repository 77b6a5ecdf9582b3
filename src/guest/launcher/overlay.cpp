#include "guest/launcher/overlay.hpp"

#include <linux/capability.h>
#include <linux/securebits.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>

#include "guest/launcher/credentials.hpp"
#include "guest/launcher/log.hpp"
#include "guest/launcher/mounts.hpp"
#include "guest/launcher/skeleton.hpp"

namespace dsec::launcher {
namespace {

constexpr const char* work_dir = "/work";

long set(const fd& context, unsigned command, const char* key, const void* value, int aux = 0) {
  return sys::call(SYS_fsconfig, context.get(), command, key, value, aux);
}

status set_by_descriptor(const fd& context, lowers from, int upper) {
  for (const fd& lower : from) {
    LAUNCH_TRY("lower", set(context, FSCONFIG_SET_FD, "lowerdir+", nullptr, lower.get()));
  }
  const fd u(sys::call(SYS_openat, upper, "u", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  LAUNCH_TRY("upper: u", u.get());
  const fd w(sys::call(SYS_openat, upper, "w", O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  LAUNCH_TRY("upper: w", w.get());
  LAUNCH_TRY("upper", set(context, FSCONFIG_SET_FD, "upperdir", nullptr, u.get()));
  LAUNCH_TRY("work", set(context, FSCONFIG_SET_FD, "workdir", nullptr, w.get()));
  return {};
}

/// Paths are relative to the working directory: fsconfig takes strings of at most 255 bytes.
status set_by_path(const fd& context, std::size_t count) {
  char list[256] = "0";
  int length = 1;
  for (std::size_t i = 1; i < count; ++i) {
    length += snprintf(list + length, sizeof list - static_cast<std::size_t>(length), ":%zu", i);
  }
  LAUNCH_TRY("lower", set(context, FSCONFIG_SET_STRING, "lowerdir", list));
  LAUNCH_TRY("upper", set(context, FSCONFIG_SET_STRING, "upperdir", "upper/u"));
  LAUNCH_TRY("work", set(context, FSCONFIG_SET_STRING, "workdir", "upper/w"));
  return {};
}

status attach_at(int mount, const char* name) {
  const long made = sys::call(SYS_mkdirat, AT_FDCWD, name, 0755);
  if (made < 0 && made != -EEXIST) return failed("work: mkdir", made);
  LAUNCH_TRY("work: part", attach(mount, AT_FDCWD, name));
  return {};
}

/// Creates the superblock as the mapped root: an id-mapped upper is mounted read-only, without an
/// error, when the mounter's own fsuid has no mapping. Overlay writes with the mounter's
/// capabilities for ever after, so CAP_SYS_RESOURCE is put aside, which would let everyone inside
/// write past quota and reserved blocks.
status create_as(unsigned root_id, const fd& context) {
  const without_capability no_resource(CAP_SYS_RESOURCE);
  sys::call(SYS_prctl, PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0);
  sys::call(SYS_setfsgid, root_id);
  sys::call(SYS_setfsuid, root_id);
  const long created = set(context, FSCONFIG_CMD_CREATE, nullptr, nullptr);
  sys::call(SYS_setfsuid, 0);
  sys::call(SYS_setfsgid, 0);
  sys::call(SYS_prctl, PR_SET_SECUREBITS, 0, 0, 0, 0);
  if (created < 0) log_fs_messages(context.get());
  LAUNCH_TRY("create", created);
  return {};
}

status finish(const fd& context, unsigned root_id, fd& root) {
  LAUNCH_TRY("volatile", set(context, FSCONFIG_SET_FLAG, "volatile", nullptr));
  // Not xino, index or metacopy: the first logs a line per mount (milliseconds where the console is
  // a serial line), the others change what lies in the upper directory.
  if (status s = create_as(root_id, context); !s.ok()) return s;
  root = fd(sys::call(SYS_fsmount, context.get(), FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV));
  LAUNCH_TRY("fsmount", root.get());
  struct statfs info {};
  LAUNCH_TRY("statfs", sys::call(SYS_fstatfs, root.get(), &info));
  // So it is, without an error, when the work directory could not be made.
  if ((info.f_flags & ST_RDONLY) != 0) return {"read-only: is the disk full?", EROFS};
  return {};
}

status assemble_detached(lowers from, int upper, unsigned root_id, fd& root) {
  const fd context(sys::call(SYS_fsopen, "overlay", FSOPEN_CLOEXEC));
  LAUNCH_TRY("fsopen", context.get());
  if (status s = set_by_descriptor(context, from, upper); !s.ok()) return s;
  return finish(context, root_id, root);
}

status assemble_attached(std::size_t count, unsigned root_id, fd& root) {
  const fd context(sys::call(SYS_fsopen, "overlay", FSOPEN_CLOEXEC));
  LAUNCH_TRY("fsopen", context.get());
  if (status s = set_by_path(context, count); !s.ok()) return s;
  return finish(context, root_id, root);
}

status prepare_probe(fd& lower, fd& upper) {
  if (status s = make_fs("tmpfs", {{"mode", "0755"}}, 0, lower); !s.ok()) return s;
  if (status s = make_fs("tmpfs", {{"mode", "0755"}}, 0, upper); !s.ok()) return s;
  LAUNCH_TRY("probe", sys::call(SYS_mkdirat, lower.get(), "seen", 0755));
  LAUNCH_TRY("probe", sys::call(SYS_mkdirat, upper.get(), "u", 0755));
  LAUNCH_TRY("probe", sys::call(SYS_mkdirat, upper.get(), "w", 0755));
  return {};
}

}  // namespace

bool overlay_takes_detached() {
  fd lower[1], upper, root;
  if (!prepare_probe(lower[0], upper).ok()) return false;
  if (!assemble_detached(lower, upper.get(), 0, root).ok()) return false;
  return sys::call(SYS_faccessat, root.get(), "seen", 0) == 0;
}

status attached_parts::attach(lowers from, int upper) {
  const fd base = clone_mount(AT_FDCWD, work_dir);
  LAUNCH_TRY("work: clone", base.get());
  LAUNCH_TRY("work: attach", launcher::attach(base.get(), AT_FDCWD, work_dir));
  stacked_ = true;
  LAUNCH_TRY("work: chdir", sys::call(SYS_fchdir, base.get()));
  for (std::size_t i = 0; i < from.size(); ++i) {
    char name[24];
    snprintf(name, sizeof name, "%zu", i);
    if (status s = attach_at(from[i].get(), name); !s.ok()) return s;
  }
  return attach_at(upper, "upper");
}

void attached_parts::detach() {
  if (!stacked_) return;
  sys::call(SYS_chdir, "/");
  sys::call(SYS_umount2, work_dir, MNT_DETACH);
  stacked_ = false;
}

status overlay::build(const overlay_parts& parts, bool detached) {
  std::size_t count = 0;
  const auto add = [&](const char* path) -> status {
    fd& lower = lower_[count];
    lower = clone_mount(AT_FDCWD, path);
    LAUNCH_TRY("layer: clone", lower.get());
    LAUNCH_TRY("layer: map ids", map_ids(lower.get(), parts.user_namespace, MOUNT_ATTR_RDONLY));
    ++count;
    return {};
  };
  if (status s = add(skeleton_path); !s.ok()) return s;
  for (auto it = parts.layers.rbegin(); it != parts.layers.rend(); ++it) {
    if (status s = add((*it)->path.c_str()); !s.ok()) return s;
  }
  const lowers all(lower_, count);
  if (detached) return assemble_detached(all, parts.upper, parts.root_id, root_);
  if (status s = attached_.attach(all, parts.upper); !s.ok()) return s;
  return assemble_attached(count, parts.root_id, root_);
}

void overlay::leave(leavings& rest) {
  for (fd& each : lower_) rest.take(std::move(each));
}

void overlay::drop() {
  root_.reset();
  attached_.detach();
  for (fd& each : lower_) each.reset();
}

}  // namespace dsec::launcher

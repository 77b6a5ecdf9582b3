#include "guest/launcher/namespaces.hpp"

#include <fcntl.h>
#include <sys/mount.h>

#include "guest/launcher/child.hpp"
#include "guest/launcher/mounts.hpp"

namespace dsec::launcher {
namespace {

constexpr const char* empty_net_path = "/net";

/// Makes a detached mount the only thing in the calling process's mount namespace.
status become_root(const fd& root) {
  LAUNCH_TRY("root: fchdir", sys::call(SYS_fchdir, root.get()));
  LAUNCH_TRY("root: pivot", sys::call(SYS_pivot_root, ".", "."));
  LAUNCH_TRY("root: umount", sys::call(SYS_umount2, ".", MNT_DETACH));
  LAUNCH_TRY("root: chdir", sys::call(SYS_chdir, "/"));
  return {};
}

/// Of a helper with a network namespace of its own, which its mounts keep: a bind mount of the
/// namespace itself, since sysfs alone would let its interfaces go.
status mount_empty_sys() {
  const fd ns(sys::call(SYS_openat, AT_FDCWD, "/proc/self/ns/net", O_RDONLY | O_CLOEXEC));
  LAUNCH_TRY("sys: net", ns.get());
  const fd net = clone_mount(ns.get(), "");
  LAUNCH_TRY("sys: net clone", net.get());
  LAUNCH_TRY("sys: net attach", attach(net.get(), AT_FDCWD, empty_net_path));
  fd sysfs;
  if (status s = make_fs(
          "sysfs", {}, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC,
          sysfs);
      !s.ok())
    return s;
  LAUNCH_TRY("sys: attach", attach(sysfs.get(), AT_FDCWD, empty_sys_path));
  return {};
}

int empty_sys_main(void* argument) {
  *static_cast<status*>(argument) = mount_empty_sys();
  return 0;
}

struct template_request {
  fd ns;
  status result;
};

status build_template(fd& ns) {
  // Opened while /proc is still in reach; a namespace's file stays the same when its mounts change.
  ns = fd(sys::call(SYS_openat, AT_FDCWD, "/proc/self/ns/mnt", O_RDONLY | O_CLOEXEC));
  LAUNCH_TRY("template: open", ns.get());
  const fd root = clone_mount(AT_FDCWD, "/void");
  LAUNCH_TRY("template: clone", root.get());
  LAUNCH_TRY("template: attributes",
             set_attributes(root.get(), MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV |
                                            MOUNT_ATTR_NOEXEC));
  LAUNCH_TRY("template: attach", attach(root.get(), AT_FDCWD, "/"));
  return become_root(root);
}

int template_main(void* argument) {
  auto* request = static_cast<template_request*>(argument);
  request->result = build_template(request->ns);
  return 0;
}

}  // namespace

status make_layers_namespace(int state_dir) {
  // The copy is taken in the namespace that the directory's mount belongs to (a mount of another
  // namespace cannot be cloned: EINVAL) and made private at once: as a peer it would send what we
  // mount below it to the host.
  const fd state(sys::call(SYS_open_tree, state_dir, "",
                           OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE));
  LAUNCH_TRY("state: clone", state.get());
  mount_attr change{};
  change.propagation = MS_PRIVATE;
  LAUNCH_TRY("state: private", sys::call(SYS_mount_setattr, state.get(), "",
                                         AT_EMPTY_PATH | AT_RECURSIVE, &change, sizeof change));

  LAUNCH_TRY("unshare", sys::call(SYS_unshare, CLONE_NEWNS));
  LAUNCH_TRY("private", sys::call(SYS_mount, nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr));
  fd root;
  if (status s = make_fs("tmpfs", {{"mode", "0755"}, {"size", "16m"}}, 0, root); !s.ok()) return s;
  for (const char* name : {"state", "layers", "work", "void", "proc", "dev"}) {
    LAUNCH_TRY("root: mkdir", sys::call(SYS_mkdirat, root.get(), name, 0755));
  }
  LAUNCH_TRY("root: attach", attach(root.get(), AT_FDCWD, "/"));
  LAUNCH_TRY("state: attach", attach(state.get(), root.get(), "state"));
  fd proc;
  if (status s =
          make_fs("proc", {}, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC, proc);
      !s.ok())
    return s;
  LAUNCH_TRY("proc: attach", attach(proc.get(), root.get(), "proc"));
  return become_root(root);
}

status enter_layers_namespace(int layers_ns) {
  LAUNCH_TRY("layers: enter", sys::call(SYS_setns, layers_ns, CLONE_NEWNS));
  // What it was assembling when it died; the last unmount finds nothing (EINVAL).
  while (sys::call(SYS_umount2, "/work", MNT_DETACH) == 0) {
  }
  return {};
}

status make_empty_sys() {
  if (sys::call(SYS_faccessat, AT_FDCWD, "/sys/class", 0) == 0) return {};  // of a launcher before
  long made = sys::call(SYS_mkdirat, AT_FDCWD, empty_sys_path, 0755);
  if (made < 0 && made != -EEXIST) return failed("sys: mkdir", made);
  const fd net(sys::call(SYS_openat, AT_FDCWD, empty_net_path, O_CREAT | O_CLOEXEC, 0600));
  LAUNCH_TRY("sys: net", net.get());
  status result;
  LAUNCH_TRY("sys", run_helper(0, CLONE_NEWNET, empty_sys_main, &result));
  return result;
}

status make_template(fd& template_ns) {
  template_request request;
  LAUNCH_TRY("template", run_helper(0, CLONE_NEWNS, template_main, &request));
  if (request.result.ok()) template_ns = std::move(request.ns);
  return request.result;
}

}  // namespace dsec::launcher

#include "guest/launcher/tree.hpp"

#include <stdio.h>

#include "guest/launcher/instrument.hpp"
#include "guest/launcher/mounts.hpp"

namespace dsec::launcher {
namespace {

constexpr std::uint32_t tty_group = 5;
/// The kernel has 3,072 for all instances but the host's (sysctls kernel.pty.max and .reserve).
constexpr const char* max_ptys = "256";
constexpr unsigned no_programs = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;

struct tree {
  int root;
  int sys;
  const tree_texts& texts;
  tree_fds& mounts;
  fd dev;
};

status mount_root(tree& t) {
  LAUNCH_TRY("root", attach(t.root, AT_FDCWD, "/"));
  return {};
}

status mount_dev(tree& t) {
  t.dev = clone_mount(t.root, "dev");
  LAUNCH_TRY("dev", t.dev.get());
  LAUNCH_TRY("dev",
             set_attributes(t.dev.get(), MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, MOUNT_ATTR_NODEV));
  LAUNCH_TRY("dev", attach(t.dev.get(), t.root, "dev"));
  return {};
}

status mount_pts(tree& t) {
  fd pts;
  if (status s = make_fs("devpts",
                         {{"newinstance", nullptr},
                          {"ptmxmode", "0666"},
                          {"mode", "0620"},
                          {"max", max_ptys},
                          {"gid", t.texts.tty_id}},
                         MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, pts);
      !s.ok())
    return s;
  LAUNCH_TRY("pts", attach(pts.get(), t.dev.get(), "pts"));
  return {};
}

status mount_shm(tree& t) {
  fd shm;
  if (status s = make_fs("tmpfs",
                         {{"size", t.texts.shm_bytes},
                          {"mode", "1777"},
                          {"uid", t.texts.root_id},
                          {"gid", t.texts.root_id}},
                         MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV, shm);
      !s.ok())
    return s;
  LAUNCH_TRY("shm", attach(shm.get(), t.dev.get(), "shm"));
  return {};
}

status mount_proc(tree& t) {
  if (status s = make_fs("proc", {}, no_programs, t.mounts.proc); !s.ok()) return s;
  LAUNCH_TRY("proc", attach(t.mounts.proc.get(), t.root, "proc"));
  return {};
}

status mount_sys(tree& t) {
  LAUNCH_TRY("sys", attach(t.sys, t.root, "sys"));
  // The working root is still the template's, read-only and empty; the overlay lies over it.
  const fd nothing = clone_mount(AT_FDCWD, "/");
  LAUNCH_TRY("firmware: clone", nothing.get());
  const long masked = attach(nothing.get(), t.sys, "firmware");
  if (masked < 0 && masked != -ENOENT) return failed("firmware", masked);
  return {};
}

struct mount_step {
  const char* name;
  status (*run)(tree&);
};
constexpr mount_step mount_steps[] = {
    {"mount root", mount_root}, {"mount dev", mount_dev},   {"mount pts", mount_pts},
    {"mount shm", mount_shm},   {"mount proc", mount_proc}, {"mount sys", mount_sys},
};

}  // namespace

tree_texts::tree_texts(std::uint32_t root, std::uint64_t shm_size) {
  snprintf(root_id, sizeof root_id, "%u", root);
  snprintf(tty_id, sizeof tty_id, "%u", root + tty_group);
  snprintf(shm_bytes, sizeof shm_bytes, "%llu", static_cast<unsigned long long>(shm_size));
}

status mount_tree(int root, int sys, const tree_texts& texts, tree_fds& mounts) {
  tree t{root, sys, texts, mounts, {}};
  for (const auto& step : mount_steps) {
    const step_timer timer(step.name);
    if (status s = failpoint(step.name); !s.ok()) return s;
    if (status s = step.run(t); !s.ok()) return s;
  }
  return {};
}

}  // namespace dsec::launcher

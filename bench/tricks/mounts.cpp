// The mounts of a sandbox and how it comes to see them (tricks.hpp). Each step is about one of
// them; all run in the namespace of prepare().
#include <fcntl.h>
#include <linux/mount.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>

#include "tricks/tricks.hpp"

namespace tricks {
namespace {

constexpr int many_mounts = 1000;                 // layers that a launcher holds attached
constexpr std::size_t neighbour_bytes = 4 << 20;  // what another sandbox has written meanwhile

int make_directory(const std::string& path) {
  return static_cast<int>(must(path.c_str(), call(__NR_mkdirat, AT_FDCWD, path.c_str(), 0755)));
}

/// The timed part of a step that makes one detached mount.
struct made_mount {
  int fd;
  double took;
};
template <class Make>
made_mount timed(Make make) {
  const double began = now_ms();
  const int fd = make();
  return {fd, now_ms() - began};
}

double close_after(made_mount made) {
  if (made.fd >= 0) ::close(made.fd);
  return made.took;
}

/// What a helper is told and tells.
struct errand {
  bool with;
  int result = -1;
  int network = -1;
  double took = 0;
};

// --- entering the tree

int enter_tree(void* argument) {
  auto& e = *static_cast<errand*>(argument);
  const int proc = open_at(AT_FDCWD, "/proc", O_PATH | O_DIRECTORY);
  must("template", call(__NR_setns, ready.template_ns, CLONE_NEWNS));
  must("unshare", call(__NR_unshare, CLONE_NEWNS));
  const int root = make_fs("tmpfs", {{"mode", "0755"}}, 0);
  attach(root, AT_FDCWD, "/");
  const int own = open_at(proc, "self/ns/mnt", O_RDONLY);
  const double began = now_ms();
  if (e.with) {
    must("setns", call(__NR_setns, own, CLONE_NEWNS));
  } else {
    must("fchdir", call(__NR_fchdir, root));
    must("pivot_root", call(__NR_pivot_root, ".", "."));
    must("umount", call(__NR_umount2, ".", MNT_DETACH));
  }
  e.took = now_ms() - began;
  for (const int fd : {proc, root, own}) ::close(fd);
  return 0;
}

// --- a mount namespace of one's own

void attach_many() {
  static bool done = false;
  if (done) return;
  done = true;
  make_directory("/many");
  for (int i = 0; i < many_mounts; ++i) {
    const auto path = "/many/" + std::to_string(i);
    make_directory(path);
    const int layer = clone_mount(AT_FDCWD, ready.lowers.back().c_str());
    attach(layer, AT_FDCWD, path.c_str());
    ::close(layer);
  }
}

int take_namespace(void* argument) {
  auto& e = *static_cast<errand*>(argument);
  const double began = now_ms();
  if (e.with) must("template", call(__NR_setns, ready.template_ns, CLONE_NEWNS));
  must("unshare", call(__NR_unshare, CLONE_NEWNS));
  e.took = now_ms() - began;
  return 0;
}

// --- /dev

int dev_of_skeleton() {
  const int dev = clone_mount(AT_FDCWD, "/skeleton/dev");
  mount_attr change = {};
  change.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;
  must("dev", call(__NR_mount_setattr, dev, "", AT_EMPTY_PATH, &change, sizeof change));
  return dev;
}

int dev_of_its_own() {
  const int dev = make_fs("tmpfs", {{"mode", "0755"}}, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
  for (const char* name : {"pts", "shm"}) must(name, call(__NR_mkdirat, dev, name, 0755));
  const struct {
    const char* name;
    unsigned minor;
  } nodes[] = {{"null", 3}, {"zero", 5}, {"full", 7}, {"random", 8}, {"urandom", 9}};
  for (const auto& n : nodes)
    must(n.name, call(__NR_mknodat, dev, n.name, S_IFCHR | 0666, makedev(1, n.minor)));
  return dev;
}

made_mount make_dev(bool with) {
  return timed(with ? dev_of_skeleton : dev_of_its_own);
}

// --- /sys

int take_sys(void* argument) {
  auto& e = *static_cast<errand*>(argument);
  const auto made = timed([&] {
    return e.with ? clone_mount(AT_FDCWD, "/sys")
                  : make_fs("sysfs", {}, MOUNT_ATTR_RDONLY | no_programs);
  });
  e.took = made.took;
  e.result = made.fd;
  e.network = open_at(AT_FDCWD, "/proc/self/ns/net", O_RDONLY);
  return 0;
}

/// In a network of its own, which a sandbox has with either.
errand make_sys(bool with) {
  errand e{with};
  run_helper(CLONE_NEWNET, take_sys, &e);
  return e;
}

// --- /dev/shm

int shm_in_common(const std::string& directory, int user_namespace) {
  make_directory(directory);
  return id_mapped(directory.c_str(), user_namespace);
}

/// The tmpfs that all would share, made once, and a sandbox's user namespace.
int common_shm() {
  static const int user = [] {
    make_directory("/shm");
    attach(make_fs("tmpfs", {{"mode", "0755"}}, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV), AT_FDCWD,
           "/shm");
    const slot s = make_slot(next_name());
    remove_home(s);
    return s.user;
  }();
  return user;
}

made_mount make_sandbox_shm(bool with) {
  const int user = common_shm();
  const auto directory = "/shm/" + next_name();
  return timed([&] { return with ? shm_in_common(directory, user) : make_shm(); });
}

// --- /dev/pts

made_mount make_pts(bool with) {
  return timed([&] { return with ? -1 : make_devpts(); });
}

// --- the end of an overlay

int plain_overlay(const std::string& home, bool is_volatile) {
  const auto upper = home + "/u", work = home + "/w";
  const auto* lower = ready.lowers.front().c_str();
  if (is_volatile)
    return make_fs("overlay",
                   {{"lowerdir", lower},
                    {"upperdir", upper.c_str()},
                    {"workdir", work.c_str()},
                    {"volatile", nullptr}},
                   0);
  return make_fs("overlay",
                 {{"lowerdir", lower}, {"upperdir", upper.c_str()}, {"workdir", work.c_str()}}, 0);
}

void write_file(int dir, const char* path, std::size_t bytes) {
  static const std::vector<char> text(1 << 16, 'x');
  const int file = static_cast<int>(
      must(path, call(__NR_openat, dir, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)));
  for (std::size_t n = 0; n < bytes; n += text.size())
    must(path, call(__NR_write, file, text.data(), text.size()));
  ::close(file);
}

}  // namespace

/// With: setns(2) makes the topmost mount at "/" the root. Without: pivot_root, which looks at
/// every process of the host, and an unmount.
double no_pivot(bool with) {
  errand e{with};
  run_helper(0, enter_tree, &e);
  return e.took;
}

/// With: a copy of a namespace with one mount. Without: of one in which the layers are attached.
double template_namespace(bool with) {
  attach_many();
  errand e{with};
  run_helper(0, take_namespace, &e);
  return e.took;
}

/// With: device nodes and mount points come with the lowest layer. Without: a tmpfs for them.
double skeleton_dev(bool with) {
  return close_after(make_dev(with));
}
void hold_dev(bool with) {
  make_dev(with);
}

/// With: a copy of one mount, of a network with nothing in it. Without: sysfs of its own network.
double shared_sys(bool with) {
  const errand e = make_sys(with);
  for (const int fd : {e.result, e.network}) ::close(fd);
  return e.took;
}
void hold_sys(bool with) {
  make_sys(with);
}

/// With: an id-mapped directory of one tmpfs, without a size of its own. Without: a tmpfs.
double shared_shm(bool with) {
  return close_after(make_sandbox_shm(with));
}
void hold_shm(bool with) {
  make_sandbox_shm(with);
}

/// With: not made before something opens a terminal. Without: made with the sandbox.
double late_pts(bool with) {
  return close_after(make_pts(with));
}
void hold_pts(bool with) {
  make_pts(with);
}

/// The end of an overlay while a neighbour's writes are not on disk yet. Without `volatile` it
/// writes all of the file system out.
double volatile_overlay(bool with) {
  slot s = make_slot(next_name());
  drop_slot(s);
  const int root = plain_overlay(s.home, with);
  write_file(root, "own", 1);
  write_file(AT_FDCWD, "/disk/neighbour", neighbour_bytes);
  const double began = now_ms();
  ::close(root);
  const double took = now_ms() - began;
  remove_home(s);
  ::unlink("/disk/neighbour");
  return took;
}

}  // namespace tricks

// What stands before any sandbox does: layers, skeleton, template namespace (sandbox.hpp).
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/loop.h>
#include <linux/mount.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "floor/kernel.hpp"
#include "floor/sandbox.hpp"

namespace floor_bench {

setup ready;

namespace {

constexpr int first_free_fd = 32;  // below are aether's

int loop_device(const std::string& image) {
  const int control = open_at(AT_FDCWD, "/dev/loop-control", O_RDWR);
  const int number =
      static_cast<int>(must("loop: free", call(__NR_ioctl, control, LOOP_CTL_GET_FREE)));
  const auto path = "/dev/loop" + std::to_string(number);
  loop_config how = {};
  how.fd = static_cast<unsigned>(open_at(AT_FDCWD, image.c_str(), O_RDONLY));
  how.info.lo_flags = LO_FLAGS_READ_ONLY | LO_FLAGS_AUTOCLEAR;
  const int device = open_at(AT_FDCWD, path.c_str(), O_RDONLY);
  must("loop: configure", call(__NR_ioctl, device, LOOP_CONFIGURE, &how));
  ::close(static_cast<int>(how.fd));
  ::close(control);
  return device;  // its mount keeps it from here on
}

/// File-backed where the kernel can (6.12), else by loop device.
int mount_erofs(const std::string& image) {
  const long context = must("erofs: fsopen", call(__NR_fsopen, "erofs", FSOPEN_CLOEXEC));
  must("erofs: source",
       call(__NR_fsconfig, context, FSCONFIG_SET_STRING, "source", image.c_str(), 0));
  if (call(__NR_fsconfig, context, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) == 0) {
    const long mount =
        must("erofs: fsmount", call(__NR_fsmount, context, FSMOUNT_CLOEXEC, MOUNT_ATTR_RDONLY));
    call(__NR_close, context);
    return static_cast<int>(mount);
  }
  call(__NR_close, context);
  const int device = loop_device(image);
  const auto source = "/proc/self/fd/" + std::to_string(device);
  const int mount =
      make_fs("erofs", {{"ro", nullptr}, {"source", source.c_str()}}, MOUNT_ATTR_RDONLY);
  ::close(device);
  return mount;
}

void make_skeleton(int root) {
  for (const char* path : {"proc", "sys", "tmp", "run", "dev", "dev/pts", "dev/shm"}) {
    must(path, call(__NR_mkdirat, root, path, 0755));
  }
  const struct {
    const char* path;
    unsigned minor;
  } devices[] = {
      {"dev/null", 3}, {"dev/zero", 5}, {"dev/full", 7}, {"dev/random", 8}, {"dev/urandom", 9}};
  for (const auto& d : devices)
    must(d.path, call(__NR_mknodat, root, d.path, S_IFCHR | 0666, makedev(1, d.minor)));
  must("opaque dev",
       call(__NR_fsetxattr, open_at(root, "dev", O_RDONLY), "trusted.overlay.opaque", "y", 1, 0));
}

/// sysfs of a network with nothing in it, for all sandboxes. A descriptor keeps that network.
int mount_empty_sys(void* result) {
  open_at(AT_FDCWD, "/proc/self/ns/net", O_RDONLY);
  *static_cast<int*>(result) = make_fs("sysfs", {}, MOUNT_ATTR_RDONLY | no_programs);
  return 0;
}

/// Makes `root` the only mount of the calling process's namespace.
void become_root(int root) {
  attach(root, AT_FDCWD, "/");
  must("fchdir", call(__NR_fchdir, root));
  must("pivot_root", call(__NR_pivot_root, ".", "."));
  must("umount", call(__NR_umount2, ".", MNT_DETACH));
  must("chdir", call(__NR_chdir, "/"));
}

int make_template(void*) {
  ready.template_ns = open_at(AT_FDCWD, "/proc/self/ns/mnt", O_RDONLY);
  become_root(make_fs("tmpfs", {{"mode", "0555"}}, MOUNT_ATTR_RDONLY));
  return 0;
}

/// Unrelated things lie below, so ext4 spreads them (chattr(1) +T). Others refuse the flag.
void spread_below(const char* directory) {
  const int fd = open_at(AT_FDCWD, directory, O_RDONLY | O_DIRECTORY);
  int flags = 0;
  if (call(__NR_ioctl, fd, FS_IOC_GETFLAGS, &flags) == 0) {
    flags |= FS_TOPDIR_FL;
    call(__NR_ioctl, fd, FS_IOC_SETFLAGS, &flags);
  }
  ::close(fd);
}

/// aether's program from beside this one, in a sealed memory file.
int load_aether() {
  char self[4096];
  const auto n = ::readlink("/proc/self/exe", self, sizeof self - 1);
  const std::string program(self, static_cast<std::size_t>(n));
  const auto path = program.substr(0, program.rfind('/')) + "/floor_aether";
  const int file = open_at(AT_FDCWD, path.c_str(), O_RDONLY);
  struct stat info {};
  ::fstat(file, &info);
  const int memory = ::memfd_create("aether", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (::sendfile(memory, file, nullptr, static_cast<std::size_t>(info.st_size)) != info.st_size) {
    give_up("copy aether", -5);
  }
  ::fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  const auto link = "/proc/self/fd/" + std::to_string(memory);
  const int readable =
      open_at(AT_FDCWD, link.c_str(), O_RDONLY);  // a file open for writing cannot be executed
  ::close(memory);
  ::close(file);
  return readable;
}

}  // namespace

int open_at(int dir, const char* path, int flags) {
  return static_cast<int>(must(path, call(__NR_openat, dir, path, flags | O_CLOEXEC, 0)));
}

int make_fs(const char* type, std::initializer_list<option> options, unsigned attributes) {
  const long context = must(type, call(__NR_fsopen, type, FSOPEN_CLOEXEC));
  for (const auto& o : options) {
    const auto command = o.value == nullptr ? FSCONFIG_SET_FLAG : FSCONFIG_SET_STRING;
    must(o.key, call(__NR_fsconfig, context, command, o.key, o.value, 0));
  }
  must(type, call(__NR_fsconfig, context, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0));
  const long mount = must(type, call(__NR_fsmount, context, FSMOUNT_CLOEXEC, attributes));
  call(__NR_close, context);
  return static_cast<int>(mount);
}

void attach(int mount, int dir, const char* path) {
  must("move_mount", call(__NR_move_mount, mount, "", dir, path, MOVE_MOUNT_F_EMPTY_PATH));
}

int clone_mount(int dir, const char* path) {
  return static_cast<int>(
      must(path, call(__NR_open_tree, dir, path, OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC)));
}

int id_mapped(const char* path, int user_namespace) {
  const int mount = clone_mount(AT_FDCWD, path);
  mount_attr change = {};
  change.attr_set = MOUNT_ATTR_IDMAP;
  change.userns_fd = static_cast<__u64>(user_namespace);
  must("idmap", call(__NR_mount_setattr, mount, "", AT_EMPTY_PATH, &change, sizeof change));
  return mount;
}

int make_devpts() {
  return make_fs("devpts", {{"newinstance", nullptr}, {"ptmxmode", "0666"}, {"mode", "0620"}},
                 MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
}

int make_shm() {
  return make_fs(
      "tmpfs",
      {{"size", "67108864"}, {"mode", "1777"}, {"uid", "1600000000"}, {"gid", "1600000000"}},
      MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
}

void prepare_process(int most) {
  for (int fd = 3; fd < first_free_fd; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) ::dup3(open_at(AT_FDCWD, "/dev/null", O_RDWR), fd, O_CLOEXEC);
  }
  // Growing a table that is shared (CLONE_FILES) waits for a grace period of RCU, 10 ms and more
  // (expand_fdtable in the kernel's fs/file.c): large enough from the start.
  must("table", ::dup3(first_free_fd - 1, first_kept + most, O_CLOEXEC));
  ready.aether = load_aether();
}

void prepare(const std::string& disk, const std::vector<std::string>& layers) {
  // The directory's mount must be cloned in the namespace that it belongs to.
  const auto flags = static_cast<unsigned>(OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
  must("unshare", call(__NR_unshare, CLONE_NEWNS));
  must("private", call(__NR_mount, nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr));
  const int upper =
      static_cast<int>(must("disk", call(__NR_open_tree, AT_FDCWD, disk.c_str(), flags)));
  std::vector<int> images;
  for (const auto& layer : layers) images.push_back(mount_erofs(layer));
  run_helper(CLONE_NEWNS, make_template, nullptr);
  int sys = -1;
  run_helper(CLONE_NEWNET, mount_empty_sys, &sys);

  const int root = make_fs("tmpfs", {{"mode", "0755"}}, 0);
  for (const char* name : {"disk", "skeleton", "proc", "sys"})
    must(name, call(__NR_mkdirat, root, name, 0755));
  make_skeleton(open_at(root, "skeleton", O_RDONLY));
  ready.lowers = {"/skeleton"};
  for (std::size_t i = images.size(); i-- > 0;) {
    const auto name = "layer" + std::to_string(i);
    must("layer", call(__NR_mkdirat, root, name.c_str(), 0755));
    ready.lowers.push_back("/" + name);
  }
  const int proc = make_fs("proc", {}, 0);
  become_root(root);
  attach(upper, AT_FDCWD, "/disk");
  spread_below("/disk");
  attach(proc, AT_FDCWD, "/proc");
  attach(sys, AT_FDCWD, "/sys");
  for (std::size_t i = 0; i < images.size(); ++i) {
    attach(images[i], AT_FDCWD, ("/layer" + std::to_string(i)).c_str());
  }
}

}  // namespace floor_bench

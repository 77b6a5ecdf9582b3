// Attacks on what the platform mounted: taking it away, making it writable, mounting file systems
// that show the host.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>
#include <vector>

#include "attack.hpp"

namespace dsec::attack {
namespace {

struct mounted {
  std::string point, options;
};

std::vector<mounted> mounts() {
  std::vector<mounted> all;
  std::ifstream in("/proc/self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string skip;
    mounted m;
    words >> skip >> skip >> skip >> skip >> m.point >> m.options;
    all.push_back(m);
  }
  return all;
}

bool has(const std::string& options, const char* flag) {
  return ("," + options + ",").find("," + std::string(flag) + ",") != std::string::npos;
}

/// Every mount that is there from the start is locked: umount2 says EINVAL, clearing a flag EPERM.
void take_apart() {
  for (const auto& m : mounts()) {
    for (const int flags : {0, int{MNT_DETACH}, int{MNT_FORCE}})
      attempt("umount " + m.point, umount2(m.point.c_str(), flags));
    const char* p = m.point.c_str();
    attempt("move " + m.point, mount(p, "/tmp", nullptr, MS_MOVE, nullptr));
    if (has(m.options, "ro"))
      attempt("remount rw " + m.point, mount(nullptr, p, nullptr, MS_REMOUNT | MS_BIND, nullptr));
    if (has(m.options, "nodev"))
      attempt("remount dev " + m.point,
              mount(nullptr, p, nullptr,
                    MS_REMOUNT | MS_BIND | (has(m.options, "ro") ? MS_RDONLY : 0), nullptr));
  }
}

/// The same in namespaces of its own making: locks are inherited.
void take_apart_in_copy() {
  if (unshare(CLONE_NEWNS) != 0) return;
  take_apart();
}

void mount_fresh() {
  mkdir("/tmp/m", 0700);
  // A new procfs would be without the masks; the others are the host's own instances.
  for (const char* type : {"proc", "sysfs", "debugfs", "tracefs", "securityfs", "bpf", "configfs",
                           "fusectl", "pstore", "devtmpfs"}) {
    const int r = mount("none", "/tmp/m", type, 0, nullptr);
    attempt(std::string("mount ") + type, r);
    if (r == 0) umount2("/tmp/m", MNT_DETACH);
  }
}

void write_kernel() {
  for (const char* path :
       {"/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/vm/drop_caches",
        "/proc/sys/kernel/panic", "/sys/kernel/mm/ksm/run", "/sys/power/state",
        "/sys/kernel/uevent_helper", "/proc/sys/fs/binfmt_misc/register"})
    attempt(std::string("open for writing ") + path, open(path, O_WRONLY));
  for (const char* path : {"/proc/kcore", "/proc/kpagecgroup", "/proc/kpagecount",
                           "/proc/kpageflags", "/dev/kmsg", "/dev/mem", "/proc/kmsg"})
    attempt(std::string("open ") + path, open(path, O_RDONLY));
}

void make_devices() {
  attempt("mknod of a disk", mknod("/tmp/disk", S_IFBLK | 0600, makedev(254, 0)));
  attempt("mknod of mem", mknod("/tmp/mem", S_IFCHR | 0600, makedev(1, 1)));
}

}  // namespace

void attack_mounts() {
  take_apart();
  mount_fresh();
  write_kernel();
  make_devices();
  take_apart_in_copy();
}

}  // namespace dsec::attack

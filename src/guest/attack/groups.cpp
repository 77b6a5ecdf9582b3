// Attacks through control groups: a namespace of its own lets root inside mount every hierarchy;
// the files there must still not be his. Files are only opened for writing: that is where the
// kernel decides, and a hole must not hit the groups of the host.
#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <vector>

#include "attack.hpp"

namespace dsec::attack {
namespace {

constexpr const char* at = "/tmp/cg";
constexpr const char* offered_at = "/tmp/cg-of-another";
constexpr int most_children = 8;  // of one group; a host may have thousands

std::vector<std::string> entries(int dir, unsigned char type) {
  std::vector<std::string> names;
  const int own = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* stream = own >= 0 ? fdopendir(own) : nullptr;
  if (stream == nullptr) return names;
  while (const dirent* e = readdir(stream)) {
    if (e->d_type == type && e->d_name[0] != '.') names.emplace_back(e->d_name);
  }
  closedir(stream);
  return names;
}

/// A command may not have clone3; what it says instead is moot.
void clone_into(int dir, const std::string& name) {
  struct {
    unsigned long flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid,
        set_tid_size, cgroup;
  } arguments{};
  arguments.flags = 0x200000000UL;  // CLONE_INTO_CGROUP
  arguments.exit_signal = 17;
  arguments.cgroup = static_cast<unsigned long>(dir);
  const long child = syscall(SYS_clone3, &arguments, sizeof arguments);
  if (child == 0) _exit(0);
  attempt("clone into " + name, child);
}

void tamper(int dir, const std::string& name) {
  for (const auto& file : entries(dir, DT_REG)) {
    const int fd = openat(dir, file.c_str(), O_WRONLY | O_CLOEXEC);
    attempt("open for writing " + name + "/" + file, fd);
    if (fd >= 0) close(fd);
  }
  const int made = mkdirat(dir, "x", 0755);
  attempt("mkdir in " + name, made);
  if (made == 0) unlinkat(dir, "x", AT_REMOVEDIR);
  clone_into(dir, name);
}

void tamper_with_children(int dir, const std::string& name) {
  int left = most_children;
  for (const auto& child : entries(dir, DT_DIR)) {
    if (left-- == 0) return;
    const int fd = openat(dir, child.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) continue;
    tamper(fd, name + "/" + child);
    close(fd);
  }
}

bool mount_and_tamper(const char* type, const char* options) {
  const auto name = std::string(type) + (options == nullptr ? "" : std::string(":") + options);
  if (mount("none", at, type, 0, options) != 0) {
    printf("note: mount %s: %s\n", name.c_str(), strerror(errno));
    return false;
  }
  const int dir = open(at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (dir >= 0) {
    tamper(dir, name);
    tamper_with_children(dir, name);
    close(dir);
  }
  umount2(at, MNT_DETACH);
  return dir >= 0;
}

int all_hierarchies() {
  int worked = mount_and_tamper("cgroup2", nullptr) ? 1 : 0;
  for (const char* controller :
       {"memory", "pids", "cpu", "cpu,cpuacct", "freezer", "devices", "cpuset", "blkio"})
    worked += mount_and_tamper("cgroup", controller) ? 1 : 0;
  return worked;
}

}  // namespace

void attack_groups() {
  mkdir(at, 0700);
  const int foreign = open(offered_at, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  all_hierarchies();  // of the namespace that the platform gave
  if (unshare(CLONE_NEWCGROUP) != 0) return untried("a namespace of control groups");
  if (all_hierarchies() == 0) untried("any hierarchy: none can be mounted");
  if (foreign < 0 || entries(foreign, DT_REG).empty()) return untried("another command's group");
  tamper(foreign, "another command's group");
  close(foreign);
}

void offer_group(int seconds) {
  mkdir(offered_at, 0700);
  const bool good =
      unshare(CLONE_NEWCGROUP) == 0 && mount("none", offered_at, "cgroup2", 0, nullptr) == 0;
  puts(good ? "offered" : strerror(errno));
  sleep(static_cast<unsigned>(seconds));
}

int run_in_group_namespace(const char* script) {
  if (unshare(CLONE_NEWCGROUP) != 0) return perror("unshare"), 2;
  execl("/bin/sh", "sh", "-c", script, nullptr);
  return perror("/bin/sh"), 2;
}

}  // namespace dsec::attack

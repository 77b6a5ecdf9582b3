// Attacks through control groups: a namespace of its own lets root inside mount every hierarchy;
// the files there must still not be his.
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "attack.hpp"

namespace dsec::attack {
namespace {

constexpr const char* at = "/tmp/cg";

void write_file(const std::string& file, const char* text) {
  const auto path = std::string(at) + "/" + file;
  const int fd = open(path.c_str(), O_WRONLY);
  if (fd < 0 && errno == ENOENT) return;
  if (fd < 0) return attempt("open " + path, -1);
  attempt("write " + path, write(fd, text, strlen(text)));
  close(fd);
}

void tamper() {
  for (const char* file : {"cgroup.procs", "cgroup.threads", "tasks"}) write_file(file, "0");
  // Upwards and sideways: the slot's other group, the instance's other slots.
  for (const char* file : {"../cgroup.procs", "../init/cgroup.procs", "init/cgroup.procs"})
    write_file(file, "0");
  for (const char* file : {"cgroup.kill", "cgroup.freeze"}) write_file(file, "1");
  write_file("freezer.state", "FROZEN");
  write_file("cgroup.subtree_control", "+pids");
  for (const char* file : {"memory.max", "memory.high", "memory.swap.max", "pids.max", "cpu.max"})
    write_file(file, "max");
  for (const char* file :
       {"memory.limit_in_bytes", "memory.memsw.limit_in_bytes", "pids.max", "cpu.cfs_quota_us"})
    write_file(file, "-1");
  write_file("release_agent", "/tmp/x");
  write_file("notify_on_release", "1");
  write_file("devices.allow", "a");
  attempt("mkdir in a group", mkdir("/tmp/cg/x", 0755));
}

void clone_into() {
  const int fd = open(at, O_RDONLY | O_DIRECTORY);
  if (fd < 0) return;
  struct {
    unsigned long flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid,
        set_tid_size, cgroup;
  } arguments{};
  arguments.flags = 0x200000000UL;  // CLONE_INTO_CGROUP
  arguments.exit_signal = 17;
  arguments.cgroup = static_cast<unsigned long>(fd);
  const long child = syscall(SYS_clone3, &arguments, sizeof arguments);
  if (child == 0) _exit(0);
  attempt("clone into a group", child);
  close(fd);
}

void mount_and_tamper(const char* type, const char* options) {
  const auto name = std::string("mount ") + type + " " + (options == nullptr ? "" : options);
  if (mount("none", at, type, 0, options) != 0) {
    printf("note: %s: %s\n", name.c_str(), strerror(errno));
    return;
  }
  printf("note: %s works\n", name.c_str());
  tamper();
  clone_into();
  umount2(at, MNT_DETACH);
}

void all_hierarchies() {
  mount_and_tamper("cgroup2", nullptr);
  for (const char* controller :
       {"memory", "pids", "cpu", "cpu,cpuacct", "freezer", "devices", "cpuset", "blkio"})
    mount_and_tamper("cgroup", controller);
}

}  // namespace

void attack_groups() {
  mkdir(at, 0700);
  all_hierarchies();
  if (unshare(CLONE_NEWCGROUP) == 0) all_hierarchies();
}

}  // namespace dsec::attack

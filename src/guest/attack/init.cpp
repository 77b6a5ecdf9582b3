// Attacks on process 1 of the sandbox, which is aether: everything by which one process can signal,
// trace, read, write, limit or reschedule another.
#include <fcntl.h>
#include <linux/kcmp.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "attack.hpp"

namespace dsec::attack {
namespace {

constexpr pid_t init = 1;

void signals() {
  for (const int s : {SIGHUP, SIGINT, SIGKILL, SIGUSR1, SIGTERM, SIGCONT, SIGSTOP, SIGRTMIN}) {
    attempt("kill 1 with " + std::to_string(s), kill(init, s));
    attempt("tgkill 1 with " + std::to_string(s), syscall(SYS_tgkill, init, init, s));
  }
  sigval value{};
  attempt("sigqueue to 1", sigqueue(init, SIGKILL, value));
}

/// The kernel sends this signal itself, on our behalf, when the pipe becomes readable.
void signal_by_owner() {
  int ends[2];
  if (pipe(ends) != 0) return;
  fcntl(ends[0], F_SETSIG, SIGKILL);
  fcntl(ends[0], F_SETOWN, init);
  fcntl(ends[0], F_SETFL, O_ASYNC);
  if (write(ends[1], "x", 1) != 1) return;
  usleep(50'000);
  errno = EPERM;
  attempt("F_SETOWN 1 with SIGKILL",
          kill(init, 0) != 0 && errno == ESRCH ? 0 : (errno = EPERM, -1));
}

void by_pidfd() {
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, init, 0));
  if (fd < 0) return attempt("pidfd_open 1", fd);
  attempt("pidfd_send_signal", syscall(SYS_pidfd_send_signal, fd, SIGKILL, nullptr, 0));
  for (int i = 0; i < 16; ++i)
    attempt("pidfd_getfd " + std::to_string(i), syscall(SYS_pidfd_getfd, fd, i, 0));
  for (const int kind : {CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNS | CLONE_NEWNET})
    attempt("setns by pidfd " + std::to_string(kind), setns(fd, kind));
  char byte = 0;
  iovec memory{&byte, 1};
  attempt("process_madvise", syscall(SYS_process_madvise, fd, &memory, 1, MADV_PAGEOUT, 0));
  close(fd);
}

void by_ptrace() {
  attempt("ptrace attach", ptrace(PTRACE_ATTACH, init, nullptr, nullptr));
  attempt("ptrace seize", ptrace(PTRACE_SEIZE, init, nullptr, nullptr));
  char bytes[16];
  iovec here{bytes, sizeof bytes}, there{reinterpret_cast<void*>(0x400000), sizeof bytes};
  attempt("process_vm_readv", syscall(SYS_process_vm_readv, init, &here, 1, &there, 1, 0));
  attempt("process_vm_writev", syscall(SYS_process_vm_writev, init, &here, 1, &there, 1, 0));
  attempt("kcmp", syscall(SYS_kcmp, init, getpid(), KCMP_FILES, 0, 0));
}

void scheduling() {
  rlimit limit{1, 1};
  attempt("prlimit", prlimit(init, RLIMIT_NOFILE, &limit, nullptr));
  attempt("setpriority", setpriority(PRIO_PROCESS, init, 19));
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  CPU_SET(0, &cpus);
  attempt("sched_setaffinity", sched_setaffinity(init, sizeof cpus, &cpus));
  sched_param parameters{};
  attempt("sched_setscheduler", sched_setscheduler(init, SCHED_IDLE, &parameters));
  attempt("ioprio_set", syscall(SYS_ioprio_set, 1, init, 3 << 13));
  unsigned long nodes = 1;
  attempt("migrate_pages", syscall(SYS_migrate_pages, init, 8, &nodes, &nodes));
  attempt("setpgid", setpgid(init, 0));
  perf_event_attr attributes{};
  attributes.size = sizeof attributes;
  attempt("perf_event_open", syscall(SYS_perf_event_open, &attributes, init, -1, -1, 0));
}

/// Files that may be opened where nothing is told: what counts is whether a byte comes.
void read_proc() {
  for (const char* name :
       {"mem", "environ", "maps", "smaps", "auxv", "syscall", "stack", "pagemap", "io",
        "personality", "timers", "task/1/mem", "task/1/environ", "numa_maps"}) {
    const auto path = std::string("/proc/1/") + name;
    const int fd = open(path.c_str(), O_RDONLY | O_NONBLOCK);
    char byte = 0;
    const auto n = fd < 0 ? -1 : read(fd, &byte, 1);
    if (n == 0) errno = ENODATA;
    attempt("read " + path, n > 0 ? n : -1);
    if (fd >= 0) close(fd);
  }
}

/// Directories, namespaces and what stands behind links: a descriptor of them is all one wants.
void open_proc() {
  for (const char* name :
       {"map_files", "fd",     "fdinfo", "root",   "root/etc/passwd", "cwd",         "cwd/etc",
        "exe",       "fd/3",   "fd/4",   "fd/5",   "task/1/fd",       "task/1/root", "ns/user",
        "ns/mnt",    "ns/pid", "ns/net", "ns/ipc", "ns/uts",          "ns/cgroup"}) {
    const auto path = std::string("/proc/1/") + name;
    for (const int how : {O_RDONLY | O_NONBLOCK, O_PATH}) {
      // The directory itself is there for all to see; only what is in it is not.
      const bool listed = how == O_PATH && (path.ends_with("/fd") || path.ends_with("/map_files") ||
                                            path.ends_with("/fdinfo"));
      if (listed) continue;
      const int fd = open(path.c_str(), how);
      attempt((how == O_PATH ? "refer to " : "open ") + path, fd);
      if (fd >= 0) close(fd);
    }
  }
  char target[256];
  for (const char* name : {"exe", "cwd", "root", "ns/user", "fd/3"})
    attempt(std::string("readlink /proc/1/") + name,
            readlink((std::string("/proc/1/") + name).c_str(), target, sizeof target));
}

void write_proc() {
  for (const char* name :
       {"mem", "oom_score_adj", "oom_adj", "coredump_filter", "clear_refs", "comm", "timerslack_ns",
        "attr/current", "uid_map", "gid_map", "setgroups", "sched", "autogroup", "loginuid"}) {
    const auto path = std::string("/proc/1/") + name;
    const int fd = open(path.c_str(), O_WRONLY);
    if (fd < 0) {
      attempt("write " + path, -1);
      continue;
    }
    attempt("write " + path, write(fd, "0", 1));
    close(fd);
  }
}

/// Nothing of aether's may be inherited: neither its channel nor its groups.
void inherited() {
  for (int fd = 3; fd < 1024; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) hole("descriptor " + std::to_string(fd) + " was inherited");
  }
}

}  // namespace

void attack_init() {
  inherited();
  signals();
  signal_by_owner();
  by_pidfd();
  by_ptrace();
  scheduling();
  read_proc();
  open_proc();
  write_proc();
  if (kill(init, 0) != 0 && errno == ESRCH) hole("process 1 is gone");
}

/// In a child: where the kernel honours it, the caller dies.
void attack_reboot() {
  for (const unsigned how :
       {unsigned(RB_AUTOBOOT), unsigned(RB_HALT_SYSTEM), unsigned(RB_POWER_OFF)}) {
    const pid_t child = fork();
    if (child == 0) {
      const int outcome = reboot(static_cast<int>(how));
      _exit(outcome == 0 ? 0 : errno);
    }
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) continue;
    errno = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
    attempt("reboot " + std::to_string(how), errno == 0 ? 0 : -1);
  }
}

}  // namespace dsec::attack

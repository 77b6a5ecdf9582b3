// What a pool would make ahead of a sandbox: its namespaces and the directory of its writable layer
// (sandbox.hpp).
#include <fcntl.h>
#include <ftw.h>
#include <linux/futex.h>
#include <linux/securebits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "floor/kernel.hpp"
#include "floor/sandbox.hpp"

namespace floor_bench {
namespace {

void write_map(long pid, const char* file) {
  char path[64];
  char map[64];
  std::snprintf(path, sizeof path, "/proc/%ld/%s", pid, file);
  const int n = std::snprintf(map, sizeof map, "0 %u 65536", id_base);
  const int fd = open_at(AT_FDCWD, path, O_WRONLY);
  must(path, call(__NR_write, fd, map, n));
  ::close(fd);
}

std::string make_home(const std::string& name) {
  const std::string home = "/disk/" + name;
  for (const char* below : {"", "/u", "/w"}) {
    must("mkdir", call(__NR_mkdir, (home + below).c_str(), 0755));
  }
  return home;
}

int remove_entry(const char* path, const struct stat*, int, FTW*) {
  return ::remove(path);
}

void loopback_up() {
  const int s = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = IFF_UP;
  must("lo up", call(__NR_ioctl, s, SIOCSIFFLAGS, &request));
  ::close(s);
}

/// The first process of a slot's namespaces; it shares memory and descriptors with us.
struct maker {
  std::atomic<std::uint32_t> mapped{0};  // futex
  slot* made;
};

int maker_main(void* argument) {
  auto* m = static_cast<maker*>(argument);
  call(__NR_prctl, PR_SET_PDEATHSIG, SIGKILL);
  while (m->mapped.load() == 0) call(__NR_futex, &m->mapped, FUTEX_WAIT_PRIVATE, 0, nullptr);
  must("setresgid", call(__NR_setresgid, 0, 0, 0));
  must("setresuid", call(__NR_setresuid, 0, 0, 0));
  must("unshare", call(__NR_unshare, CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC));
  loopback_up();
  m->made->net = open_at(AT_FDCWD, "/proc/self/ns/net", O_RDONLY);
  m->made->uts = open_at(AT_FDCWD, "/proc/self/ns/uts", O_RDONLY);
  m->made->ipc = open_at(AT_FDCWD, "/proc/self/ns/ipc", O_RDONLY);
  return 0;
}

}  // namespace

slot make_slot(const std::string& name) {
  slot s;
  maker m;
  m.made = &s;
  // The namespace's owner is the effective uid that makes it: aether's (user_namespaces(7)).
  call(__NR_prctl, PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0);
  must("setresuid", call(__NR_setresuid, -1, aether_id, -1));
  const long pid = start_child(0, CLONE_NEWUSER | CLONE_FILES, -1, maker_main, &m);
  must("setresuid", call(__NR_setresuid, -1, 0, -1));
  call(__NR_prctl, PR_SET_SECUREBITS, 0, 0, 0, 0);
  write_map(pid, "uid_map");
  write_map(pid, "gid_map");
  s.user = open_at(AT_FDCWD, ("/proc/" + std::to_string(pid) + "/ns/user").c_str(), O_RDONLY);
  m.mapped.store(1);
  call(__NR_futex, &m.mapped, FUTEX_WAKE_PRIVATE, 1);
  s.home = make_home(name);
  wait_child(pid);
  return s;
}

void drop_slot(slot& s) {
  for (int* fd : {&s.user, &s.net, &s.uts, &s.ipc}) {
    ::close(*fd);
    *fd = -1;
  }
}

void remove_home(const slot& s) {
  ::nftw(s.home.c_str(), remove_entry, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

}  // namespace floor_bench

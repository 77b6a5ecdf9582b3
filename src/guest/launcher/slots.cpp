#include "guest/launcher/slots.hpp"

#include <linux/futex.h>
#include <linux/securebits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include <atomic>

#include "guest/launcher/child.hpp"

namespace dsec::launcher {
namespace {

constexpr unsigned ids = 65536;  // inside: 0 .. 65535

/// The helper that is the first process of the slot's namespaces, and what it is told and tells.
struct maker {
  std::atomic<std::uint32_t> go{0};  // futex: 1 = mapped, 2 = give up
  slot* result;
  status outcome;
};

fd open_namespace(const char* path) {
  return fd(sys::call(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
}

long write_file(const char* path, const char* text) {
  const fd file(sys::call(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC));
  if (!file.valid()) return file.get();
  return sys::call(SYS_write, file.get(), text, strlen(text));
}

status prepare_network() {
  const fd socket(sys::call(SYS_socket, AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  LAUNCH_TRY("net: socket", socket.get());
  ifreq request{};
  memcpy(request.ifr_name, "lo", sizeof "lo");
  request.ifr_flags = IFF_UP;
  LAUNCH_TRY("net: lo", sys::call(SYS_ioctl, socket.get(), SIOCSIFFLAGS, &request));
  return {};
}

status make_inner_namespaces(slot& s) {
  LAUNCH_TRY("setresgid", sys::call(SYS_setresgid, 0, 0, 0));
  LAUNCH_TRY("setresuid", sys::call(SYS_setresuid, 0, 0, 0));
  LAUNCH_TRY("unshare", sys::call(SYS_unshare, CLONE_NEWNET | CLONE_NEWUTS | CLONE_NEWIPC));
  if (status n = prepare_network(); !n.ok()) return n;
  s.net = open_namespace("/proc/self/ns/net");
  LAUNCH_TRY("net", s.net.get());
  s.uts = open_namespace("/proc/self/ns/uts");
  LAUNCH_TRY("uts", s.uts.get());
  s.ipc = open_namespace("/proc/self/ns/ipc");
  LAUNCH_TRY("ipc", s.ipc.get());
  return {};
}

int maker_main(void* argument) {
  auto* m = static_cast<maker*>(argument);
  while (m->go.load() == 0) sys::call(SYS_futex, &m->go, FUTEX_WAIT_PRIVATE, 0, nullptr);
  if (m->go.load() == 1) m->outcome = make_inner_namespaces(*m->result);
  return 0;
}

/// Starts the helper in a user namespace owned by `owner`: the owner is the creator's effective
/// uid. Capabilities are kept meanwhile, since distributions forbid unprivileged user namespaces in
/// various ways.
long start_owned_by(std::uint32_t owner, maker& m) {
  clone_args arguments{};
  arguments.flags = CLONE_NEWUSER | CLONE_FILES;
  arguments.exit_signal = SIGCHLD;
  long pid = sys::call(SYS_prctl, PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0);
  if (pid == 0) pid = sys::call(SYS_setresuid, -1, owner, -1);
  if (pid == 0) pid = start_child(arguments, child_stack(0), maker_main, &m);
  sys::call(SYS_setresuid, -1, 0, -1);
  sys::call(SYS_prctl, PR_SET_SECUREBITS, 0, 0, 0, 0);
  return pid;
}

/// Maps ids 0..65535 and opens the namespace of a helper that waits in it.
status adopt_user_namespace(long pid, slot& s) {
  char path[48], map[48];
  snprintf(map, sizeof map, "0 %u %u", s.uid_base, ids);
  for (const char* name : {"uid_map", "gid_map"}) {
    snprintf(path, sizeof path, "/proc/%ld/%s", pid, name);
    LAUNCH_TRY(name, write_file(path, map));
  }
  snprintf(path, sizeof path, "/proc/%ld/ns/user", pid);
  s.user = fd(sys::call(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC));
  LAUNCH_TRY("user", s.user.get());
  return {};
}

status make_namespaces(slot& s) {
  maker m;
  m.result = &s;
  const long pid = start_owned_by(s.aether_uid, m);
  LAUNCH_TRY("clone", pid);
  const status mapped = adopt_user_namespace(pid, s);
  m.go.store(mapped.ok() ? 1 : 2);
  sys::call(SYS_futex, &m.go, FUTEX_WAKE_PRIVATE, 1);
  wait_child(pid);
  return mapped.ok() ? m.outcome : mapped;
}

}  // namespace

status slot_table::make(std::uint32_t number, std::uint32_t uid_base, std::uint32_t aether_uid) {
  if (uid_base == 0 || uid_base > UINT32_MAX - ids || aether_uid == 0 ||
      aether_uid - uid_base < ids)
    return {"ids", EINVAL};
  slot s;
  s.uid_base = uid_base;
  s.aether_uid = aether_uid;
  if (status made = make_namespaces(s); !made.ok()) return made;
  for (fd* each : {&s.user, &s.net, &s.uts, &s.ipc}) LAUNCH_TRY("keep", each->keep());
  slots_.insert_or_assign(number, std::move(s));
  return {};
}

status slot_table::drop(std::uint32_t number) {
  return slots_.erase(number) == 1 ? status{} : status{"number", ENOENT};
}

slot* slot_table::find(std::uint32_t number) {
  const auto it = slots_.find(number);
  return it == slots_.end() ? nullptr : &it->second;
}

}  // namespace dsec::launcher

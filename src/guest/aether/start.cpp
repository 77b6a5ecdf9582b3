// Entry point of aether: PID 1 of a sandbox, exec'ed by the launcher with fixed descriptors
// (guest/channel.hpp), an unmapped uid and no capabilities. Makes itself unreadable, reads `boot`,
// runs the proxy for good.
#include <linux/close_range.h>
#include <linux/mman.h>
#include <linux/prctl.h>

#include "guest/aether/proxy.hpp"

// Beside everything else, so that all of it has one page of page table.
extern "C" {
[[gnu::used]] alignas(4096) char aether_stack[0x40000];
}

namespace dsec::guest::aether {
namespace {

// All zero at first, so that it is in .bss and only pages that are used exist.
constinit proxy the_proxy;

/// What the kernel has put at the far end of the address space, the first stack and the vDSO, needs
/// a page table of three pages of its own. Where the vDSO may not be unmapped it all stays.
void leave_far_end() {
  constexpr uint64_t begin = 1ULL << 32, end = (1ULL << 47) - 4096;
  sys::call(__NR_munmap, begin, end - begin);
  sys::call(__NR_mprotect, aether_stack, 4096, PROT_NONE);  // what runs over the stack faults
}

/// A closed 0, 1 or 2 would be the number of the next descriptor that is opened.
void fill_stdio() {
  for (int fd = 0; fd < 3; ++fd) {
    if (sys::call(__NR_fcntl, fd, F_GETFD) == -EBADF) sys::call(__NR_eventfd2, 0, 0);
  }
}

/// Blocks all signals, of which the kernel lets only the launcher's reach PID 1 anyway, and undoes
/// what the launcher may have ignored: commands inherit dispositions through the spawner.
void settle_signals() {
  constexpr int often_ignored[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGPIPE, SIGALRM, SIGTERM,
                                   SIGUSR1, SIGUSR2, SIGTSTP, SIGTTIN, SIGTTOU, SIGXFSZ};
  struct sigaction action = {};
  for (const int signal : often_ignored) {
    sys::call(__NR_rt_sigaction, signal, &action, nullptr, sizeof action.sa_mask);
  }
  action.sa_flags = SA_NOCLDSTOP;  // root inside may stop and continue commands as it likes
  sys::call(__NR_rt_sigaction, SIGCHLD, &action, nullptr, sizeof action.sa_mask);
  const unsigned long all = ~0UL;
  sys::call(__NR_rt_sigprocmask, SIG_SETMASK, &all, nullptr, sizeof all);
}

void raise_file_limit() {
  struct rlimit64 files = {};
  sys::call(__NR_prlimit64, 0, RLIMIT_NOFILE, nullptr, &files);
  files.rlim_cur = files.rlim_max;
  sys::call(__NR_prlimit64, 0, RLIMIT_NOFILE, &files);
}

/// Waits for the launcher; nothing runs inside yet.
boot_body read_boot() {
  datagram d;
  boot_body boot = {};
  const bool good = channel_link::receive(d, true) == channel_link::got::datagram &&
                    d.head.type == static_cast<uint16_t>(msg::boot) &&
                    decode_body(d.bytes, d.size, boot) && boot.version == channel_version &&
                    boot.tasks_count <= max_tasks_fds;
  if (!good) sys::exit(exit_no_boot);
  return boot;
}

[[noreturn]] void run() {
  leave_far_end();
  sys::call(__NR_prctl, PR_SET_DUMPABLE, 0);
  sys::call(__NR_prctl, PR_SET_NAME, "aether");
  sys::call(__NR_umask, 022);
  fill_stdio();
  sys::call(__NR_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC);
  settle_signals();
  raise_file_limit();
  the_proxy.run(read_boot());
}

}  // namespace
}  // namespace dsec::guest::aether

// Static objects are never destroyed: the process ends by exit_group.
extern "C" {
int __cxa_atexit(void (*)(void*), void*, void*) {
  return 0;
}
[[gnu::visibility("hidden")]] void* __dso_handle = nullptr;
}

extern "C" [[noreturn, gnu::used]] void aether_main() {
  dsec::guest::aether::run();
}

asm(".globl _start\n"
    "_start:\n\t"
    "xor %ebp, %ebp\n\t"
    "lea aether_stack + 0x40000(%rip), %rsp\n\t"
    "call aether_main\n\t"
    "hlt\n");

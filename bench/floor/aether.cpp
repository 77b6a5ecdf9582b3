// The floor's PID 1: no libc, one spawner, one command, its result as one byte on the channel; then
// it waits to be killed. The same parts as the daemon's aether in the order in which they cannot be
// left out: spawner forked with inner credentials and the product's own filter, command cloned into
// its group as PID 1's child, both outputs read to their end, status collected.   argv: aether
// TASKS PROGRAM
#include <linux/close_range.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <signal.h>

#include "floor/sys.hpp"
#include "guest/aether/filter_program.hpp"

// What the compiler may call for itself.
extern "C" void* memset(void* to, int byte, unsigned long n) {
  for (auto* p = static_cast<unsigned char*>(to); n > 0; --n)
    *p++ = static_cast<unsigned char>(byte);
  return to;
}
extern "C" void* memcpy(void* to, const void* from, unsigned long n) {
  auto* p = static_cast<unsigned char*>(to);
  for (auto* q = static_cast<const unsigned char*>(from); n > 0; --n) *p++ = *q++;
  return to;
}

namespace floor_bench {
namespace {

constexpr int dumpable = 4;            // PR_SET_DUMPABLE
constexpr long wait_all = 0x40000000;  // __WALL

constexpr auto sandbox_filter = dsec::guest::aether::build_sandbox_filter();
constexpr auto command_filter = dsec::guest::aether::build_command_filter();

struct {
  int tasks;
  const char* program;
  int out[2], err[2], link[2];
} self;

alignas(16) char command_stack[16384];

void load(const dsec::guest::aether::filter_program& filter) {
  struct {
    unsigned short size;
    const sock_filter* code;
  } const argument = {filter.size, filter.code};
  must("seccomp", call(__NR_seccomp, SECCOMP_SET_MODE_FILTER, 0, &argument));
}

[[noreturn]] void command() {
  for (int i = 0; i < self.tasks; ++i) must("tasks", call(__NR_write, fd_tasks + i, "0", 1));
  call(__NR_setsid);
  call(__NR_dup2, self.out[1], 1);
  call(__NR_dup2, self.err[1], 2);
  call(__NR_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC);
  must("setgroups", call(__NR_setgroups, 0, 0));
  load(command_filter);
  const char* const argv[] = {self.program, nullptr};
  const char* const envp[] = {nullptr};
  must("execve", call(__NR_execve, self.program, argv, envp));
  __builtin_unreachable();
}

/// clone3 with the child on its own stack, as PID 1's child; only the kernel returns twice.
long start_command() {
  clone_args how = {};
  how.flags = CLONE_VM | CLONE_PARENT | CLONE_INTO_CGROUP;
  how.cgroup = fd_group;
  how.stack = reinterpret_cast<uint64_t>(command_stack);
  how.stack_size = sizeof command_stack;
  long result = __NR_clone3;
  asm volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xor %%ebp, %%ebp\n\t"
      "call *%[body]\n"
      "1:"
      : "+a"(result)
      : "D"(&how), "S"(sizeof how), [body] "r"(&command)
      : "rcx", "r11", "memory");
  return result;
}

[[noreturn]] void spawner() {
  must("setns user", call(__NR_setns, fd_userns, CLONE_NEWUSER));
  must("setresgid", call(__NR_setresgid, 0, 0, 0));
  must("setresuid", call(__NR_setresuid, 0, 0, 0));
  call(__NR_prctl, dumpable, 0);
  load(sandbox_filter);
  must("clone command", start_command());
  // Only commands may hold the write ends, or their output never ends.
  call(__NR_close, self.out[1]);
  call(__NR_close, self.err[1]);
  call(__NR_close, self.link[0]);
  char byte;
  call(__NR_read, self.link[1], &byte, 1);
  call(__NR_exit_group, 0);
  __builtin_unreachable();
}

void drain(int fd) {
  char text[4096];
  while (call(__NR_read, fd, text, sizeof text) > 0) {
  }
  call(__NR_close, fd);
}

[[noreturn]] void run() {
  constexpr long seqpacket = 5, unix_family = 1, cloexec = 02000000;
  call(__NR_prctl, dumpable, 0);
  must("pipe", call(__NR_pipe2, self.out, cloexec));
  must("pipe", call(__NR_pipe2, self.err, cloexec));
  must("socketpair", call(__NR_socketpair, unix_family, seqpacket | cloexec, 0, self.link));
  const long child = must("fork", call(__NR_clone, SIGCHLD, 0, 0, 0, 0));
  if (child == 0) spawner();
  call(__NR_close, self.out[1]);
  call(__NR_close, self.err[1]);
  call(__NR_close, self.link[1]);
  drain(self.out[0]);
  drain(self.err[0]);
  int status = -1;
  must("wait", call(__NR_wait4, -1, &status, wait_all, 0));
  const char result = status == 0 ? 'k' : 'b';
  must("report", call(__NR_write, fd_channel, &result, 1));
  char byte;
  call(__NR_read, fd_channel, &byte, 1);
  call(__NR_exit_group, 0);
  __builtin_unreachable();
}

}  // namespace
}  // namespace floor_bench

extern "C" [[noreturn, gnu::used]] void floor_start(long* stack) {
  auto** argv = reinterpret_cast<const char**>(stack + 1);
  floor_bench::self.tasks = argv[1][0] - '0';
  floor_bench::self.program = argv[2];
  floor_bench::run();
}

asm(".globl _start\n"
    "_start:\n"
    "  mov %rsp, %rdi\n"
    "  and $-16, %rsp\n"
    "  call floor_start\n");

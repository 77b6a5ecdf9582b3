// Children that share memory with their parent (kernel.hpp).
#include <linux/sched.h>
#include <signal.h>
#include <sys/wait.h>

#include "floor/kernel.hpp"

namespace floor_bench {
namespace {

alignas(16) char stacks[2][65536];

}  // namespace

long start_child(int depth, unsigned long flags, int cgroup, int (*main)(void*), void* argument) {
  clone_args how = {};
  how.flags = CLONE_VM | flags | (cgroup >= 0 ? CLONE_INTO_CGROUP : 0UL);
  how.exit_signal = SIGCHLD;
  how.cgroup = static_cast<__u64>(cgroup >= 0 ? cgroup : 0);
  how.stack = reinterpret_cast<__u64>(stacks[depth]);
  how.stack_size = sizeof stacks[depth];
  long result = __NR_clone3;
  register int (*body)(void*) asm("r12") = main;
  register void* given asm("r13") = argument;
  asm volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xor %%ebp, %%ebp\n\t"
      "mov %%r13, %%rdi\n\t"
      "call *%%r12\n\t"
      "mov %%eax, %%edi\n\t"
      "mov %[exit], %%eax\n\t"
      "syscall\n"
      "1:"
      : "+a"(result)
      : "D"(&how), "S"(sizeof how), "r"(body), "r"(given), [exit] "i"(__NR_exit_group)
      : "rcx", "r11", "memory");
  return must("clone3", result);
}

void wait_child(long pid) {
  int status = 0;
  must("wait", call(__NR_wait4, pid, &status, 0, nullptr));
  if (status != 0) give_up("helper", -1);
}

void run_helper(unsigned long flags, int (*main)(void*), void* argument, int depth) {
  wait_child(start_child(depth, CLONE_VFORK | CLONE_FILES | flags, -1, main, argument));
}

}  // namespace floor_bench

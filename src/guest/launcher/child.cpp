#include "guest/launcher/child.hpp"

#include <signal.h>
#include <sys/wait.h>

#include "guest/launcher/sys.hpp"

namespace dsec::launcher {
namespace {

constexpr std::size_t depths = 2;
constexpr std::size_t stack_bytes = 65536;
alignas(16) std::byte stacks[depths][stack_bytes];

long clone_onto_stack(const clone_args* arguments, child_main main, void* argument) {
  long result = SYS_clone3;
  register child_main fn asm("r12") = main;
  register void* arg asm("r13") = argument;
  // The child returns from the call on a fresh stack: nothing of this frame may be touched there.
  asm volatile(
      "syscall\n\t"
      "testq %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xorl %%ebp, %%ebp\n\t"
      "movq %%r13, %%rdi\n\t"
      "callq *%%r12\n\t"
      "movl %%eax, %%edi\n\t"
      "movl %[exit], %%eax\n\t"
      "syscall\n\t"
      "hlt\n"
      "1:"
      : "+a"(result)
      : "D"(arguments), "S"(sizeof *arguments), "r"(fn), "r"(arg), [exit] "i"(SYS_exit_group)
      : "rcx", "r11", "memory");
  return result;
}

}  // namespace

std::span<std::byte> child_stack(std::size_t depth) {
  return stacks[depth];
}

long start_child(clone_args arguments, std::span<std::byte> stack, child_main main,
                 void* argument) {
  // Without CLONE_CLEAR_SIGHAND aether and every command would start with SIGPIPE ignored, as it is
  // here.
  arguments.flags |= CLONE_VM | CLONE_CLEAR_SIGHAND;
  arguments.stack = reinterpret_cast<std::uintptr_t>(stack.data());
  arguments.stack_size = stack.size();
  return clone_onto_stack(&arguments, main, argument);
}

long wait_child(long pid) {
  int state = 0;
  long answer = 0;
  do {
    answer = sys::call(SYS_wait4, pid, &state, __WALL, nullptr);
  } while (answer == -EINTR);
  return answer < 0 ? answer : state;
}

long run_helper(std::size_t depth, unsigned long flags, child_main main, void* argument) {
  clone_args arguments{};
  arguments.flags = CLONE_VFORK | CLONE_FILES | flags;
  arguments.exit_signal = SIGCHLD;
  const long pid = start_child(arguments, child_stack(depth), main, argument);
  if (pid < 0) return pid;
  const long state = wait_child(pid);
  if (state < 0) return state;
  return WIFEXITED(state) ? WEXITSTATUS(state) : -EIO;
}

}  // namespace dsec::launcher

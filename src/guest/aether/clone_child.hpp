// clone3 for children that may share the caller's memory. Only the spawner uses it.
#pragma once

#include <linux/sched.h>

#include "guest/aether/syscall.hpp"

namespace dsec::guest::aether {

/// Starts `body(argument)` in a child made after `how`; returns the pid or -errno. On a shared
/// memory the child runs on how.stack, so it must not return into this frame: it enters `body`
/// straight from the system call.
inline long clone_child(const clone_args& how, void (*body)(void*), void* argument) {
  long result = __NR_clone3;
  asm volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n\t"
      "xor %%ebp, %%ebp\n\t"
      "and $-16, %%rsp\n\t"
      "mov %[argument], %%rdi\n\t"
      "call *%[body]\n\t"
      "hlt\n"
      "1:"
      : "+a"(result)
      : "D"(&how), "S"(sizeof how), [body] "r"(body), [argument] "r"(argument)
      : "rcx", "r11", "memory");
  return result;
}

}  // namespace dsec::guest::aether

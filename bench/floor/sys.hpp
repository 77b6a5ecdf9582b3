// Raw system calls for the floor program. Whatever fails ends the process with the name of the
// step: a floor that did half of its work must not give a figure. Freestanding apart from errno
// names; shared with aether.cpp.
#pragma once

#include <asm/unistd.h>
#include <stdint.h>

namespace floor_bench {

template <class... Args>
inline long call(long number, Args... args) {
  long a[6] = {
      (long)(args)...,
  };
  register long r10 asm("r10") = a[3];
  register long r8 asm("r8") = a[4];
  register long r9 asm("r9") = a[5];
  long result;
  asm volatile("syscall"
               : "=a"(result)
               : "0"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

/// Writes "floor: STEP: errno N" and exits.
[[noreturn]] inline void give_up(const char* step, long error) {
  char text[128] = "floor: ";
  unsigned n = 7;
  for (; *step != '\0' && n < 100; ++step) text[n++] = *step;
  for (const char* part = ": errno "; *part != '\0'; ++part) text[n++] = *part;
  const long e = -error;
  if (e >= 100) text[n++] = static_cast<char>('0' + e / 100 % 10);
  text[n++] = static_cast<char>('0' + e / 10 % 10);
  text[n++] = static_cast<char>('0' + e % 10);
  text[n++] = '\n';
  call(__NR_write, 2, text, n);
  call(__NR_exit_group, 9);
  __builtin_unreachable();
}

inline long must(const char* step, long result) {
  if (result < 0 && result > -4096) give_up(step, result);
  return result;
}

/// Descriptors aether is exec'ed with.
enum aether_fd : int { fd_channel = 3, fd_userns = 4, fd_group = 5, fd_tasks = 6 };
inline constexpr int max_tasks = 8;

}  // namespace floor_bench

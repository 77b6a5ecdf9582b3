// Raw system calls of the launcher: -errno on failure, errno itself is never touched, because
// helpers made with CLONE_VM run on the launcher's thread-local storage, and glibc's setresuid
// would signal "all threads". x86-64 only, like the freestanding aether. Any process that shares
// the launcher's memory may call these.
#pragma once

#include <errno.h>
#include <sys/syscall.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace dsec::launcher::sys {

template <class T>
inline long word(T value) {
  if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<long>(value);
  } else if constexpr (std::is_null_pointer_v<T>) {
    return 0;
  } else {
    return static_cast<long>(value);
  }
}

inline long call6(long number, long a, long b, long c, long d, long e, long f) {
  long result = number;
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

/// call(SYS_name, arguments…)
template <class... A>
inline long call(long number, A... arguments) {
  static_assert(sizeof...(A) <= 6);
  const long a[6] = {word(arguments)...};
  return call6(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

}  // namespace dsec::launcher::sys

// Raw system calls of x86-64, and the few kernel structures that no uapi header gives. No libc, no
// errno: every call returns what the kernel returned, -errno on failure. Thin on purpose; policy
// lives in the callers. Usable by aether, the spawner and a command's child alike (it keeps no
// state).
#pragma once

#include <asm/stat.h>
#include <asm/unistd.h>
#include <linux/errno.h>
#include <linux/fcntl.h>
#include <linux/resource.h>
#include <linux/signal.h>
#include <linux/stat.h>
#include <linux/time_types.h>
#include <linux/uio.h>
#include <stddef.h>
#include <stdint.h>

namespace dsec::guest::aether::sys {

inline long word(decltype(nullptr)) {
  return 0;
}
template <class T>
long word(T* pointer) {
  return reinterpret_cast<long>(pointer);
}
template <class T>
long word(T number) {
  return static_cast<long>(number);
}

inline long raw(long number, long a, long b, long c, long d, long e, long f) {
  register long r10 asm("r10") = d;
  register long r8 asm("r8") = e;
  register long r9 asm("r9") = f;
  long result = number;
  asm volatile("syscall"
               : "+a"(result)
               : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return result;
}

template <class A = long, class B = long, class C = long, class D = long, class E = long,
          class F = long>
long call(long number, A a = 0, B b = 0, C c = 0, D d = 0, E e = 0, F f = 0) {
  return raw(number, word(a), word(b), word(c), word(d), word(e), word(f));
}

// What <sys/socket.h> would give.
inline constexpr int af_unix = 1;
inline constexpr int sock_seqpacket = 5;
inline constexpr int sock_cloexec = 02000000;
inline constexpr int sol_socket = 1;
inline constexpr int scm_rights = 1;
inline constexpr int msg_ctrunc = 0x8;
inline constexpr int msg_trunc = 0x20;
inline constexpr int msg_dontwait = 0x40;
inline constexpr int msg_nosignal = 0x4000;
inline constexpr int msg_cmsg_cloexec = 0x40000000;

struct message {
  void* name;
  int name_length;
  struct iovec* parts;
  size_t part_count;
  void* control;
  size_t control_length;
  int flags;
};

/// Bytes of a control message before its descriptors.
inline constexpr size_t rights_header = sizeof(size_t) + 2 * sizeof(int);

/// One SCM_RIGHTS control message with room for `count` descriptors.
template <size_t count>
struct rights {
  size_t length = 0;
  int level = sol_socket;
  int type = scm_rights;
  int fds[count + count % 2] = {};

  void set_count(size_t n) { length = rights_header + n * sizeof(int); }
  [[nodiscard]] size_t space() const { return (length + 7) / 8 * 8; }
  /// How many descriptors the kernel delivered into this, given the control length that recvmsg
  /// left behind.
  [[nodiscard]] size_t received(size_t control_length) const {
    const bool any = control_length >= rights_header && level == sol_socket && type == scm_rights;
    return any ? (length - rights_header) / sizeof(int) : 0;
  }
};

[[noreturn]] inline void exit(int status) {
  for (;;) call(__NR_exit_group, status);
}
inline long read(int fd, void* to, size_t n) {
  return call(__NR_read, fd, to, n);
}
inline long write(int fd, const void* from, size_t n) {
  return call(__NR_write, fd, from, n);
}
inline long pread(int fd, void* to, size_t n, uint64_t at) {
  return call(__NR_pread64, fd, to, n, at);
}
inline long pwrite(int fd, const void* from, size_t n, uint64_t at) {
  return call(__NR_pwrite64, fd, from, n, at);
}
inline long truncate(int fd, uint64_t size) {
  return call(__NR_ftruncate, fd, size);
}
inline long close(int fd) {
  return call(__NR_close, fd);
}
inline long open_at(int dir, const char* path, int flags, unsigned mode = 0) {
  return call(__NR_openat, dir, path, flags, mode);
}
inline long fstat(int fd, struct stat* out) {
  return call(__NR_fstat, fd, out);
}
inline long kill(int pid, int signal) {
  return call(__NR_kill, pid, signal);
}
inline long send(int fd, const message* m) {
  return call(__NR_sendmsg, fd, m, msg_dontwait | msg_nosignal);
}
inline long receive(int fd, message* m, int flags) {
  return call(__NR_recvmsg, fd, m, flags | msg_cmsg_cloexec);
}

inline uint64_t now_ns(int clock) {
  struct __kernel_timespec t = {};
  call(__NR_clock_gettime, clock, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000U + static_cast<uint64_t>(t.tv_nsec);
}
inline uint64_t monotonic_ns() {
  return now_ns(1);
}
inline uint64_t realtime_ns() {
  return now_ns(0);
}

}  // namespace dsec::guest::aether::sys

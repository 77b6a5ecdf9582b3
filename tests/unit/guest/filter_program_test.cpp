// The filter's instructions, run by a small interpreter of classic BPF: the kernel's own verdicts
// are in the integration test.
#include "guest/aether/filter_program.hpp"

#include <catch2/catch.hpp>
#include <cstring>
#include <stdexcept>

using namespace dsec::guest::aether;

namespace {

struct verdict {
  std::uint32_t action;
  bool operator==(const verdict&) const = default;
};
constexpr verdict allowed{SECCOMP_RET_ALLOW};
constexpr verdict denied(std::uint32_t number) {
  return {SECCOMP_RET_ERRNO | number};
}

verdict run(const filter_program& p, const seccomp_data& data) {
  std::uint32_t a = 0;
  for (std::size_t pc = 0;;) {
    REQUIRE(pc < p.size);
    const sock_filter& i = p.code[pc++];
    switch (i.code) {
      case BPF_LD | BPF_W | BPF_ABS:
        REQUIRE(i.k + 4 <= sizeof data);
        std::memcpy(&a, reinterpret_cast<const char*>(&data) + i.k, 4);
        break;
      case BPF_ALU | BPF_AND | BPF_K:
        a &= i.k;
        break;
      case BPF_JMP | BPF_JEQ | BPF_K:
        pc += a == i.k ? i.jt : i.jf;
        break;
      case BPF_JMP | BPF_JGT | BPF_K:
        pc += a > i.k ? i.jt : i.jf;
        break;
      case BPF_JMP | BPF_JGE | BPF_K:
        pc += a >= i.k ? i.jt : i.jf;
        break;
      case BPF_RET | BPF_K:
        return {i.k};
      default:
        throw std::runtime_error("unknown instruction");
    }
  }
}

constexpr filter_program sandbox = build_sandbox_filter();

verdict judge(long number, std::uint64_t a0 = 0, std::uint64_t a1 = 0, std::uint64_t a2 = 0,
              std::uint64_t a3 = 0) {
  seccomp_data d = {};
  d.nr = static_cast<int>(number);
  d.arch = AUDIT_ARCH_X86_64;
  d.args[0] = a0;
  d.args[1] = a1;
  d.args[2] = a2;
  d.args[3] = a3;
  return run(sandbox, d);
}

}  // namespace

TEST_CASE("what is not named is allowed") {
  for (const long nr : {__NR_read, __NR_clone, __NR_clone3, __NR_mount, __NR_ptrace, __NR_mbind,
                        __NR_seccomp, __NR_adjtimex, __NR_memfd_create, __NR_unshare, __NR_setns}) {
    CHECK(judge(nr) == allowed);
  }
}

TEST_CASE("every listed call is refused, for the host's architecture only entry") {
  for (const auto nr : filter_detail::forbidden) CHECK(judge(nr) == denied(EPERM));
  for (const auto nr : filter_detail::absent) CHECK(judge(nr) == denied(ENOSYS));
  CHECK(judge(newest_syscall + 1) == denied(ENOSYS));
  CHECK(judge(0x40000000 + __NR_getpid) == denied(ENOSYS));
  seccomp_data d = {};
  d.arch = AUDIT_ARCH_I386;
  CHECK(run(sandbox, d) == denied(ENOSYS));
}

TEST_CASE("sockets are judged by family, type and protocol") {
  CHECK(judge(__NR_socket, 1, 1) == allowed);
  CHECK(judge(__NR_socket, 2, 1) == allowed);
  CHECK(judge(__NR_socket, 2, 3) == allowed);
  CHECK(judge(__NR_socket, 10, 2) == allowed);
  CHECK(judge(__NR_socket, 16, 3, 0) == allowed);
  CHECK(judge(__NR_socket, 16, 3, 9) == denied(EPROTONOSUPPORT));
  CHECK(judge(__NR_socket, 2, 10) == denied(EAFNOSUPPORT));             // SOCK_PACKET
  CHECK(judge(__NR_socket, 2, 10 | 02000000) == denied(EAFNOSUPPORT));  // with SOCK_CLOEXEC
  for (const unsigned family : {0U, 17U, 38U, 40U, 44U})
    CHECK(judge(__NR_socket, family) == denied(EAFNOSUPPORT));
  CHECK(judge(__NR_socketpair, 1) == allowed);
  CHECK(judge(__NR_socketpair, 30) == denied(EAFNOSUPPORT));
}

TEST_CASE("ioctls are allowed by number") {
  for (const auto n : filter_detail::allowed_ioctls) CHECK(judge(__NR_ioctl, 0, n) == allowed);
  for (const auto n : filter_detail::refused_tty) CHECK(judge(__NR_ioctl, 0, n) == denied(ENOTTY));
  for (const unsigned n :
       {0x5401U, 0x5413U, 0x541bU, 0x5421U, 0x5451U, 0x5460U, 0x8900U, 0x8912U, 0x89ffU}) {
    CHECK(judge(__NR_ioctl, 0, n) == allowed);
  }
  // EXT4_IOC_MOVE_EXT, XFS_IOC_SWAPEXT, FICLONE, TUNSETIFF, FIFREEZE, KVM, UFFDIO, LOOP_SET_FD,
  // NVMe
  for (const unsigned n :
       {0xc028660fU, 0xc0c0586dU, 0x40049409U, 0x400454caU, 0xc0045877U, 0xae01U, 0xc018aa3fU,
        0x4c00U, 0x5400U, 0x5461U, 0x88ffU, 0x8a00U, 0U, 0xffffffffU}) {
    CHECK(judge(__NR_ioctl, 0, n) == denied(ENOTTY));
  }
  CHECK(judge(__NR_ioctl, 0, 0xffffffff00005412U) ==
        denied(ENOTTY));  // the kernel looks at the low half
}

TEST_CASE("the core limit can be asked for, and setting it does nothing") {
  constexpr verdict done{SECCOMP_RET_ERRNO};
  CHECK(judge(__NR_setrlimit, 4) == done);
  CHECK(judge(__NR_setrlimit, 7) == allowed);
  CHECK(judge(__NR_prlimit64, 0, 4, 0) == allowed);
  CHECK(judge(__NR_prlimit64, 1, 4, 1) == done);
  CHECK(judge(__NR_prlimit64, 0, 4, 0x7f0000000000U) == done);
  CHECK(judge(__NR_prlimit64, 0, 0xffffffff00000004U, 8) == done);  // an unsigned int
  CHECK(judge(__NR_prlimit64, 0, 7, 8) == allowed);
  // The old limit would not be written.
  CHECK(judge(__NR_prlimit64, 0, 4, 8, 8) == denied(EPERM));
  CHECK(judge(__NR_prlimit64, 0, 4, 8, 0x7f00000000U) == denied(EPERM));
  CHECK(judge(__NR_prlimit64, 0, 4, 0, 8) == allowed);
  CHECK(judge(__NR_prlimit64, 0, 7, 8, 8) == allowed);
}

TEST_CASE("commands lose clone3") {
  constexpr filter_program p = build_command_filter();
  seccomp_data d = {};
  d.nr = __NR_clone3;
  CHECK(run(p, d) == denied(ENOSYS));
  d.nr = __NR_clone;
  CHECK(run(p, d) == allowed);
}

// The sandbox's system call filter as a table of BPF instructions, built at compile time.
// Deny-list: what is not named is allowed, except numbers newer than this table (ENOSYS). Denials
// are errors, never signals. Pure; the unit test runs it through an interpreter. Why each denial
// stands here is said beside it.
#pragma once

#include <asm/unistd.h>
#include <linux/audit.h>
#include <linux/errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdint.h>

namespace dsec::guest::aether {

/// Highest number of the x86-64 table that has been looked at (file_setattr, 6.17).
inline constexpr uint32_t newest_syscall = 469;

struct filter_program {
  sock_filter code[220] = {};
  uint16_t size = 0;
};

namespace filter_detail {

/// Refused with EPERM wherever they are called from.
inline constexpr uint32_t forbidden[] = {
    // programs that run in the kernel, and windows into it
    __NR_bpf, __NR_perf_event_open, __NR_userfaultfd, __NR_kcmp, __NR_syslog, __NR_lookup_dcookie,
    // keys are not namespaced
    __NR_add_key, __NR_request_key, __NR_keyctl,
    // the kernel itself, its code and its clock
    __NR_init_module, __NR_finit_module, __NR_delete_module, __NR_kexec_load, __NR_kexec_file_load,
    __NR_reboot, __NR_settimeofday, __NR_clock_settime, __NR_iopl, __NR_ioperm,
    // the host's file systems, devices, memory
    __NR_open_by_handle_at, __NR_swapon, __NR_swapoff, __NR_acct, __NR_quotactl, __NR_quotactl_fd,
    __NR_nfsservctl, __NR_fanotify_init, __NR_vhangup, __NR_move_pages, __NR_migrate_pages};

/// Refused as if the kernel did not have them, so that programs fall back.
inline constexpr uint32_t absent[] = {__NR_io_uring_setup, __NR_io_uring_enter,
                                      __NR_io_uring_register};

/// Terminal ioctls ('T', number below 0x61) that are refused all the same: TIOCSTI and TIOCLINUX
/// put words into another's mouth, TIOCCONS takes the console, TIOCSETD loads line disciplines,
/// TIOCSSERIAL, TIOCVHANGUP.
inline constexpr uint32_t refused_tty[] = {0x5412, 0x541c, 0x541d, 0x5423, 0x541f, 0x5437};

/// ioctls outside the 'T' and socket ranges that are allowed.
inline constexpr uint32_t allowed_ioctls[] = {
    0x80086601, 0x40086602, 0x80087601,          // FS_IOC_GETFLAGS, SETFLAGS, GETVERSION
    0x80081272, 0x1260,     0x1268,     0x125e,  // BLKGETSIZE64, BLKGETSIZE, BLKSSZGET, BLKROGET
    0x80045200,                                  // RNDGETENTCNT
    0x80045430, 0x40045431, 0x80045432,          // TIOCGPTN, TIOCSPTLCK, TIOCGDEV
    0x80045438, 0x80045439, 0x80045440,          // TIOCGPKT, TIOCGPTLCK, TIOCGEXCL
    0x802c542a, 0x402c542b, 0x402c542c, 0x402c542d,  // TCGETS2, TCSETS2, TCSETSW2, TCSETSF2
};

constexpr sock_filter load(uint32_t offset) {
  return {BPF_LD | BPF_W | BPF_ABS, 0, 0, offset};
}
constexpr sock_filter answer(uint32_t action) {
  return {BPF_RET | BPF_K, 0, 0, action};
}
constexpr sock_filter refuse(uint32_t number) {
  return answer(SECCOMP_RET_ERRNO | number);
}
constexpr sock_filter jump(uint16_t test, uint32_t value, uint8_t yes, uint8_t no) {
  return {static_cast<uint16_t>(BPF_JMP | test | BPF_K), yes, no, value};
}
constexpr uint32_t number_at = offsetof(seccomp_data, nr);
constexpr uint32_t arch_at = offsetof(seccomp_data, arch);
/// Low half of an argument; the kernel ignores the high half of all those looked at here.
constexpr uint32_t argument_at(uint32_t i) {
  return offsetof(seccomp_data, args) + 8 * i;
}

class builder {
 public:
  constexpr void add(sock_filter instruction) { program_.code[program_.size++] = instruction; }

  /// `values` equal to the loaded word all end in `ending`; others go on after it.
  template <size_t count>
  constexpr void any_of(const uint32_t (&values)[count], sock_filter ending) {
    static_assert(count < 255);
    for (size_t i = 0; i < count; ++i) {
      const bool last = i + 1 == count;
      add(jump(BPF_JEQ, values[i], static_cast<uint8_t>(count - 1 - i), last ? 1 : 0));
    }
    add(ending);
  }

  /// Runs what `body` adds only when the loaded word equals `value`; every path through it must
  /// end.
  template <class function>
  constexpr void when(uint32_t value, function body) {
    const uint16_t at = program_.size;
    add(jump(BPF_JEQ, value, 0, 0));
    body();
    program_.code[at].jf = static_cast<uint8_t>(program_.size - at - 1);
  }

  /// Runs what `body` adds only when the loaded word is below `value`; every path through it must
  /// end.
  template <class function>
  constexpr void when_below(uint32_t value, function body) {
    const uint16_t at = program_.size;
    add(jump(BPF_JGE, value, 0, 0));
    body();
    program_.code[at].jt = static_cast<uint8_t>(program_.size - at - 1);
  }

  [[nodiscard]] constexpr filter_program finish() const { return program_; }

 private:
  filter_program program_;
};

/// One number and what becomes of a call of it.
struct rule {
  uint32_t number;
  sock_filter ending;
};

struct rule_list {
  rule all[64] = {};
  size_t count = 0;

  template <size_t n>
  constexpr void add(const uint32_t (&numbers)[n], sock_filter ending) {
    for (const uint32_t number : numbers) {
      size_t at = count++;
      for (; at > 0 && all[at - 1].number > number; --at) all[at] = all[at - 1];
      all[at] = {number, ending};
    }
  }
};

/// Binary search: when a filter is loaded the kernel runs it once for every number there is, so a
/// short path for each makes loading, which every sandbox waits for, a third faster.
constexpr void search(builder& b, const rule_list& rules, size_t from, size_t to) {
  if (to - from > 2) {
    const size_t middle = (from + to) / 2;
    b.when_below(rules.all[middle].number, [&] { search(b, rules, from, middle); });
    return search(b, rules, middle, to);
  }
  for (size_t i = from; i < to; ++i) b.any_of({rules.all[i].number}, rules.all[i].ending);
  b.add(answer(SECCOMP_RET_ALLOW));
}

constexpr void judge_ioctl(builder& b) {
  b.add(load(argument_at(1)));
  b.any_of(refused_tty, refuse(ENOTTY));
  b.any_of(allowed_ioctls, answer(SECCOMP_RET_ALLOW));
  // 0x5401..0x5460: terminals, FIONREAD, FIONBIO, FIOCLEX…; tun and sound have other numbers under
  // 'T'.
  b.add(jump(BPF_JGE, 0x5401, 0, 2));
  b.add(jump(BPF_JGT, 0x5460, 1, 0));
  b.add(answer(SECCOMP_RET_ALLOW));
  b.add(jump(BPF_JGE, 0x8900, 0, 2));  // sockets
  b.add(jump(BPF_JGT, 0x89ff, 1, 0));
  b.add(answer(SECCOMP_RET_ALLOW));
  b.add(refuse(ENOTTY));
}

constexpr void judge_socket(builder& b) {
  constexpr uint32_t af_unix = 1, af_inet = 2, af_inet6 = 10, af_netlink = 16;
  constexpr uint32_t sock_packet = 10, type_mask = 0xf, netlink_route = 0;
  b.add(load(argument_at(0)));
  b.when(af_netlink, [&] {
    b.add(load(argument_at(2)));
    b.add(jump(BPF_JEQ, netlink_route, 0, 1));
    b.add(answer(SECCOMP_RET_ALLOW));
    b.add(refuse(EPROTONOSUPPORT));
  });
  b.any_of({af_unix, af_inet6}, answer(SECCOMP_RET_ALLOW));
  b.when(af_inet, [&] {
    // An AF_INET socket of type SOCK_PACKET becomes an AF_PACKET one: packet(7).
    b.add(load(argument_at(1)));
    b.add({BPF_ALU | BPF_AND | BPF_K, 0, 0, type_mask});
    b.add(jump(BPF_JEQ, sock_packet, 0, 1));
    b.add(refuse(EAFNOSUPPORT));
    b.add(answer(SECCOMP_RET_ALLOW));
  });
  b.add(refuse(EAFNOSUPPORT));
}

constexpr void judge_socketpair(builder& b) {
  b.add(load(argument_at(0)));
  b.add(jump(BPF_JEQ, 1 /* AF_UNIX */, 0, 1));
  b.add(answer(SECCOMP_RET_ALLOW));
  b.add(refuse(EAFNOSUPPORT));
}

/// The core limit stays what the spawner made it (spawner.cpp): with 0 the kernel would run the
/// host's core dump helper again. Programs that switch core dumps off (gpg) give up on an error, so
/// they are told that it worked; with a limit of 1 no core is written anyway. setrlimit(3) asks for
/// no old limit. Who does would read what we did not write, so that is an error.
constexpr sock_filter already_done() {
  return refuse(0);
}

constexpr void judge_setrlimit(builder& b) {
  constexpr uint32_t rlimit_core = 4;
  b.add(load(argument_at(0)));
  b.any_of({rlimit_core}, already_done());
  b.add(answer(SECCOMP_RET_ALLOW));
}

constexpr void judge_prlimit(builder& b) {
  constexpr uint32_t rlimit_core = 4;
  b.add(load(argument_at(1)));
  b.when(rlimit_core, [&] {
    // Without a new limit (both halves of the pointer are 0) it only asks.
    b.add(load(argument_at(2)));
    b.add(jump(BPF_JEQ, 0, 0, 3));
    b.add(load(argument_at(2) + 4));
    b.add(jump(BPF_JEQ, 0, 0, 1));
    b.add(answer(SECCOMP_RET_ALLOW));
    b.add(load(argument_at(3)));
    b.add(jump(BPF_JEQ, 0, 0, 3));
    b.add(load(argument_at(3) + 4));
    b.add(jump(BPF_JEQ, 0, 0, 1));
    b.add(already_done());
    b.add(refuse(EPERM));
  });
  b.add(answer(SECCOMP_RET_ALLOW));
}

}  // namespace filter_detail

constexpr filter_program build_sandbox_filter() {
  using namespace filter_detail;
  builder b;
  b.add(load(arch_at));
  b.add(jump(BPF_JEQ, AUDIT_ARCH_X86_64, 1, 0));
  b.add(refuse(ENOSYS));  // 32-bit entry
  b.add(load(number_at));
  b.add(jump(BPF_JGT, newest_syscall, 0, 1));  // x32 as well
  b.add(refuse(ENOSYS));
  b.when(__NR_ioctl, [&] { judge_ioctl(b); });
  b.when(__NR_socket, [&] { judge_socket(b); });
  b.when(__NR_socketpair, [&] { judge_socketpair(b); });
  b.when(__NR_setrlimit, [&] { judge_setrlimit(b); });
  b.when(__NR_prlimit64, [&] { judge_prlimit(b); });
  rule_list rules;
  rules.add(forbidden, refuse(EPERM));
  rules.add(absent, refuse(ENOSYS));
  search(b, rules, 0, rules.count);
  return b.finish();
}

/// clone3 hides its flags behind a pointer; without it programs use clone, whose flags can be seen.
constexpr filter_program build_command_filter() {
  using namespace filter_detail;
  builder b;
  b.add(load(number_at));
  b.add(jump(BPF_JEQ, __NR_clone3, 0, 1));
  b.add(refuse(ENOSYS));
  b.add(answer(SECCOMP_RET_ALLOW));
  return b.finish();
}

}  // namespace dsec::guest::aether

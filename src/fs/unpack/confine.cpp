#include "fs/unpack/confine.hpp"

#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>

namespace dsec::fs::unpack {
namespace {

using base::fail_errno;
using base::result;

constexpr std::array kept{CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, CAP_SETFCAP};

/// A window of zstd is 128 MiB at most; two million names of a layer take some 300 MiB.
constexpr rlim_t max_memory = 2ULL << 30U;

result<void> keep_capabilities() {
  for (int c = 0; ::prctl(PR_CAPBSET_READ, c) >= 0; ++c) {
    if (std::ranges::count(kept, c) == 0 && ::prctl(PR_CAPBSET_DROP, c) != 0)
      return fail_errno("unpack: drop a capability");
  }
  std::uint32_t mask = 0;
  for (const auto c : kept) mask |= 1U << static_cast<unsigned>(c);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> sets{{{mask, mask, 0}, {0, 0, 0}}};
  if (::syscall(SYS_capset, &header, sets.data()) != 0)
    return fail_errno("unpack: keep five capabilities");
  return {};
}

result<void> limit_resources() {
  const rlimit none{0, 0};
  if (::setrlimit(RLIMIT_CORE, &none) != 0) return fail_errno("unpack: limit core dumps");
#ifndef __SANITIZE_ADDRESS__  // whose shadow is larger than any limit
  const rlimit memory{max_memory, max_memory};
  if (::setrlimit(RLIMIT_AS, &memory) != 0) return fail_errno("unpack: limit memory");
#endif
  return {};
}

}  // namespace

result<void> confine(int root) {
  DSEC_CHECK(limit_resources());
  if (::unshare(CLONE_NEWNET | CLONE_NEWIPC) != 0) return fail_errno("unpack: unshare");
  if (::fchdir(root) != 0 || ::chroot(".") != 0 || ::chdir("/") != 0)
    return fail_errno("unpack: chroot");
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return fail_errno("unpack: no_new_privs");
  return keep_capabilities();
}

}  // namespace dsec::fs::unpack

// Who dies first when memory runs out, and what idle sandboxes can give back.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>

#include "backends/sys/file.hpp"
#include "backends/sys/pidfd.hpp"
#include "cli/doctor/apart.hpp"
#include "cli/doctor/capability.hpp"

namespace dsec::cli::doctor {
namespace {

using base::errc;
using base::fail;
using base::fail_errno;
using base::result;

/// So low that whatever runs inside sandboxes dies before dsecd and their aethers do.
constexpr const char* protected_score = "-900";

result<std::string> lower_score() {
  DSEC_CHECK(sys::write_file_at(AT_FDCWD, "/proc/self/oom_score_adj", protected_score));
  DSEC_TRY(const auto now, sys::read_file("/proc/self/oom_score_adj"));
  if (now != std::string(protected_score) + "\n")
    return fail(errc::unsupported, "oom_score_adj stays at " + now.substr(0, now.find('\n')));
  return std::string("set oom_score_adj to ") + protected_score;
}

result<std::string> count_swap() {
  DSEC_TRY(const auto swaps, sys::read_file("/proc/swaps"));
  const auto lines = std::count(swaps.begin(), swaps.end(), '\n');
  if (lines <= 1) return fail(errc::unsupported, "no swap is in use");
  return std::to_string(lines - 1) + " in use";
}

/// On this process itself: the call is what is looked for, not its effect.
result<std::string> page_out() {
  constexpr std::size_t length = 4096;
  void* page = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) return fail_errno("mmap");
  DSEC_TRY(const auto self, sys::open_pidfd(::getpid()));
  const iovec range{page, length};
  if (::syscall(SYS_process_madvise, self.get(), &range, 1UL, MADV_PAGEOUT, 0U) < 0)
    return fail_errno("process_madvise");
  return std::string("asked for a page to be paged out");
}

}  // namespace

findings look_at_memory(const place&) {
  return {
      judge({"memory", "oom_score_adj -900", false,
             "give dsecd CAP_SYS_RESOURCE, and in a container the right to lower oom_score_adj",
             "everything; when the host runs out of memory the kernel may end a whole sandbox "
             "instead of a command in it"},
            apart(lower_score)),
      judge({"memory", "process_madvise", false, "run Linux 5.10 or newer",
             "everything; memory of idle sandboxes comes back under pressure only"},
            apart(page_out)),
      judge({"memory", "swap", false, "modprobe zram, or mkswap and swapon",
             "everything; memory of idle sandboxes stays in memory"},
            count_swap()),
  };
}

}  // namespace dsec::cli::doctor

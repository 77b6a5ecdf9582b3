#include "backends/sys/waiting_child.hpp"

#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "backends/sys/file.hpp"

namespace dsec::sys {

base::result<waiting_child> waiting_child::start(std::uint64_t flags, int group) {
  clone_args arguments{};
  arguments.flags = flags;
  arguments.exit_signal = SIGCHLD;
  arguments.cgroup = group < 0 ? 0 : static_cast<std::uint64_t>(group);
  const auto pid = ::syscall(SYS_clone3, &arguments, sizeof arguments);
  if (pid == 0) {
    while (true) ::syscall(SYS_pause);
  }
  if (pid < 0) return base::fail_errno("clone3");
  return waiting_child(static_cast<pid_t>(pid));
}

base::result<waiting_child> waiting_child::with_mapped_ids(std::uint32_t first_id) {
  DSEC_TRY(auto child, start(CLONE_NEWUSER));
  const auto proc = "/proc/" + std::to_string(child.pid());
  const auto map = "0 " + std::to_string(first_id) + " 65536";
  DSEC_CHECK(write_file_at(AT_FDCWD, proc + "/uid_map", map));
  DSEC_CHECK(write_file_at(AT_FDCWD, proc + "/gid_map", map));
  return child;
}

waiting_child::~waiting_child() {
  if (pid_ == 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace dsec::sys

// How a child is made and gets into its groups (tricks.hpp). Each step is the whole life of a child
// that does nothing else.
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>

#include "tricks/tricks.hpp"

namespace tricks {
namespace {

constexpr int many_fds = 1500;  // of a launcher with some hundred sandboxes

int nothing(void*) {
  return 0;
}

/// What a helper executes.
struct program {
  std::string path;
  const char* argument;  // null: it ends at once; else it waits for a signal
};

int execute(void* argument) {
  auto& p = *static_cast<program*>(argument);
  call(__NR_prctl, PR_SET_PDEATHSIG, SIGKILL);
  const char* const argv[] = {"null", p.argument, nullptr};
  const char* const envp[] = {nullptr};
  must("execve", call(__NR_execve, p.path.c_str(), argv, envp));
  return 1;
}

/// The static program that does nothing, beside this one.
std::string null_program(bool without_libc) {
  char self[4096];
  const auto n = must("readlink", call(__NR_readlink, "/proc/self/exe", self, sizeof self));
  const std::string own(self, static_cast<std::size_t>(n));
  return own.substr(0, own.rfind('/')) + (without_libc ? "/null_bare" : "/null_libc");
}

int take_own_table(void*) {
  must("fds", call(__NR_close_range, first_kept, ~0U, CLOSE_RANGE_UNSHARE));
  return 0;
}

void open_many() {
  static bool done = false;
  if (done) return;
  done = true;
  const int null = open_at(AT_FDCWD, "/dev/null", O_RDONLY);
  for (int i = 0; i < many_fds; ++i) must("dup", ::fcntl(null, F_DUPFD_CLOEXEC, first_kept));
}

/// A command's groups, and the same ones' `cgroup.procs`.
struct attachment {
  groups g = make_groups(next_name(), aether_id);
  std::vector<int> procs;
  std::atomic<std::uint32_t> go{0};  // futex

  attachment() {
    procs.push_back(open_at(g.command, "cgroup.procs", O_WRONLY));
    for (const int tasks : g.command_tasks)
      procs.push_back(
          static_cast<int>(must("cgroup.procs", open_beside(tasks, "cgroup.procs", O_WRONLY))));
  }
};

int write_zero(void* argument) {
  for (const int tasks : static_cast<const attachment*>(argument)->g.command_tasks)
    must("attach", call(__NR_write, tasks, "0", 1));
  return 0;
}

/// Until it was put where it belongs.
int await_go(void* argument) {
  auto& go = static_cast<attachment*>(argument)->go;
  while (go.load() == 0) call(__NR_futex, &go, FUTEX_WAIT_PRIVATE, 0, nullptr);
  return 0;
}

void put_there(attachment& a, long pid) {
  const auto text = std::to_string(pid);
  for (const int file : a.procs) must("attach", call(__NR_write, file, text.data(), text.size()));
  a.go.store(1);
  call(__NR_futex, &a.go, FUTEX_WAKE_PRIVATE, 1);
}

}  // namespace

/// With: a program with an entry point of its own. Without: one on the static C library.
double no_libc(bool with) {
  program p{null_program(with), nullptr};
  const double began = now_ms();
  run_helper(0, execute, &p);
  return now_ms() - began;
}
void hold_program(bool with) {
  program p{null_program(with), "stay"};
  start_child(0, CLONE_VFORK | CLONE_FILES, -1, execute, &p);
}

/// With: the child runs on our memory until it executes something else. Without: a copy of it.
double shared_memory(bool with) {
  const double began = now_ms();
  if (with) {
    run_helper(CLONE_NEWPID, nothing, nullptr);
  } else {
    const long pid =
        must("fork", call(__NR_clone, SIGCHLD | CLONE_NEWPID | CLONE_FILES, 0, 0, 0, 0));
    if (pid == 0) call(__NR_exit_group, 0);
    wait_child(pid);
  }
  return now_ms() - began;
}

/// With: our table of descriptors is shared until the child takes a copy of its low end. Without:
/// all of it is copied and closed again.
double shared_table(bool with) {
  open_many();
  const double began = now_ms();
  if (with) {
    run_helper(0, take_own_table, nullptr);
  } else {
    wait_child(start_child(0, CLONE_VFORK, -1, nothing, nullptr));
  }
  return now_ms() - began;
}

/// With: cloned into the version 2 group, "0" written to the version 1 `tasks` by the child itself.
/// Without: its pid written to `cgroup.procs` of each, while it waits; older kernels stop every
/// fork and exit of the host for that, for a grace period of RCU (cgroup_threadgroup_rwsem).
double own_attach(bool with) {
  static attachment a;
  a.go.store(0);
  const double began = now_ms();
  if (with) {
    wait_child(start_child(0, CLONE_VFORK | CLONE_FILES, a.g.command, write_zero, &a));
  } else {
    const long pid = start_child(0, CLONE_FILES, -1, await_go, &a);
    put_there(a, pid);
    wait_child(pid);
  }
  return now_ms() - began;
}

}  // namespace tricks

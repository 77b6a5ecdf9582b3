// The steps from clone to exec, in order (exec_child.hpp).
#include "guest/aether/exec_child.hpp"

#include <linux/close_range.h>
#include <linux/openat2.h>

#include "guest/aether/file_commands.hpp"
#include "guest/aether/filter.hpp"
#include "guest/aether/program.hpp"
#include "guest/aether/syscall.hpp"
#include "guest/aether/users.hpp"

namespace dsec::guest::aether {
namespace {

void send_record(const child_plan& plan, const status_record& record) {
  sys::write(plan.fds[start_status], &record, sizeof record);
}

void say_pid(const child_plan& plan) {
  const auto pid = static_cast<int32_t>(sys::call(__NR_getpid));
  send_record(plan, {.failure = 0, .value = pid});
}

/// "0" written to a v1 tasks file moves the writer: no wait for an RCU grace period as with
/// another's pid.
void join_groups(const child_plan& plan) {
  for (uint32_t i = 0; i < plan.tasks_count; ++i) {
    const long r = sys::write(plan.first_tasks_fd + static_cast<int>(i), "0", 1);
    if (r < 0) child_fails(plan, failure::resources, r);
  }
}

/// Nothing to read. The sandbox's own /dev/null: watches and locks on it reach no other sandbox and
/// not the host. Root inside may have put anything in its place, or nothing, so the open does not
/// wait; without it the end of a pipe does.
long open_empty() {
  struct open_how how = {};
  how.flags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  how.resolve = RESOLVE_NO_MAGICLINKS;
  const long fd = sys::call(__NR_openat2, AT_FDCWD, "/dev/null", &how, sizeof how);
  if (fd >= 0) {
    sys::call(__NR_fcntl, fd, F_SETFL, 0);
    return fd;
  }
  int ends[2] = {};
  if (const long r = sys::call(__NR_pipe2, ends, O_CLOEXEC); r < 0) return r;
  sys::close(ends[1]);
  return ends[0];
}

void take_stdio(const child_plan& plan) {
  sys::call(__NR_setsid);
  const long input = plan.request.input != 0 ? plan.fds[start_stdin] : open_empty();
  const long from[3] = {input, plan.fds[start_stdout], plan.fds[start_stderr]};
  for (int i = 0; i < 3; ++i) {
    const long r = from[i] < 0 ? from[i] : sys::call(__NR_dup2, from[i], i);
    if (r < 0) child_fails(plan, failure::resources, r);
  }
  sys::call(__NR_close_range, 3, ~0U, CLOSE_RANGE_CLOEXEC);
}

void take_identity(const child_plan& plan, identity& who) {
  if (const long r = resolve_user(plan.strings.user, who); r < 0) {
    child_fails(plan, failure::bad_user, r);
  }
  if (const long r = take_groups(who); r < 0) child_fails(plan, failure::bad_user, r);
  // Before the uid goes, and with it the capability to load a filter without no_new_privs.
  if (const long r = load_command_filter(); r < 0) child_fails(plan, failure::resources, r);
  if (const long r = take_uid(who); r < 0) child_fails(plan, failure::bad_user, r);
}

void enter_cwd(const child_plan& plan) {
  const char* cwd = *plan.strings.cwd == '\0' ? "/" : plan.strings.cwd;
  if (const long r = sys::call(__NR_chdir, cwd); r < 0) child_fails(plan, failure::bad_cwd, r);
}

/// The spawner blocks everything; a program starts with nothing blocked. Dispositions are the
/// default ones.
void unblock_signals() {
  const unsigned long none = 0;
  sys::call(__NR_rt_sigprocmask, SIG_SETMASK, &none, nullptr, sizeof none);
}

}  // namespace

void child_fails(const child_plan& plan, failure why, long negative_errno) {
  send_record(plan, {.failure = static_cast<uint32_t>(why),
                     .value = static_cast<int32_t>(-negative_errno)});
  sys::exit(127);
}

void run_child(child_plan& plan) {
  say_pid(plan);
  join_groups(plan);
  take_stdio(plan);
  identity who;
  take_identity(plan, who);
  enter_cwd(plan);
  unblock_signals();
  switch (static_cast<exec_kind>(plan.request.kind)) {
    case exec_kind::program:
      run_program(plan, who);
    case exec_kind::shell:
      run_shell(plan, who);
    case exec_kind::read_file:
      read_file(plan);
    case exec_kind::write_file:
      write_file(plan);
  }
  child_fails(plan, failure::bad_request, -EINVAL);
}

}  // namespace dsec::guest::aether

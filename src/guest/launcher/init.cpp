#include "guest/launcher/init.hpp"

#include <linux/close_range.h>
#include <linux/wait.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "guest/launcher/child.hpp"
#include "guest/launcher/credentials.hpp"
#include "guest/launcher/instrument.hpp"
#include "guest/launcher/tree.hpp"

namespace dsec::launcher {
namespace {

constexpr unsigned last_inner_id = 65535;
constexpr int oom_score = 200;          // commands may not go below it
constexpr const char* oom_adj = "-15";  // aether itself, in units of the old file: -882

/// What launcher and child share.
struct init_request {
  const init_plan& plan;
  tree_texts texts;
  status result;
};

/// The child's own: its descriptors are numbers of the child's table, so it must live on the
/// child's stack only.
struct init_state {
  const init_plan& plan;
  const tree_texts& texts;
  tree_fds mounts;
  fd inner_ns;  // the locked copy of the tree
};

status join_groups(init_state& s) {
  for (const fd& tasks : s.plan.tasks)
    LAUNCH_TRY("tasks", sys::call(SYS_write, tasks.get(), "0", 1));
  return {};
}

/// Namespaces are joined while the table is still the launcher's: their descriptors are kept above
/// the line.
status join_namespaces(init_state& s) {
  LAUNCH_TRY("template", sys::call(SYS_setns, s.plan.template_ns, CLONE_NEWNS));
  LAUNCH_TRY("net", sys::call(SYS_setns, s.plan.net, CLONE_NEWNET));
  LAUNCH_TRY("ipc", sys::call(SYS_setns, s.plan.ipc, CLONE_NEWIPC));
  LAUNCH_TRY("uts", sys::call(SYS_setns, s.plan.uts, CLONE_NEWUTS));
  return {};
}

/// A table of our own. Only what lies below the line is copied.
status take_own_fds(init_state&) {
  LAUNCH_TRY("close_range", sys::call(SYS_close_range, first_kept, ~0U, CLOSE_RANGE_UNSHARE));
  return {};
}

status set_hostname(init_state& s) {
  LAUNCH_TRY("sethostname", sys::call(SYS_sethostname, s.plan.hostname, strlen(s.plan.hostname)));
  return {};
}

/// The tree is built in a namespace owned by the host. Copied into one owned by the slot every
/// mount in it becomes locked (mount_namespaces(7)); mounts put there directly root inside could
/// take off or remount.
status build_tree(init_state& s) {
  LAUNCH_TRY("unshare", sys::call(SYS_unshare, CLONE_NEWNS));
  return mount_tree(s.plan.root, s.plan.sys, s.texts, s.mounts);
}

int copy_main(void* argument) {
  auto& s = *static_cast<init_state*>(argument);
  long answer = sys::call(SYS_setns, guest::fd_userns, CLONE_NEWUSER);
  if (answer == 0) answer = sys::call(SYS_unshare, CLONE_NEWNS);
  if (answer == 0) {
    s.inner_ns =
        fd(sys::call(SYS_openat, s.mounts.proc.get(), "self/ns/mnt", O_RDONLY | O_CLOEXEC));
    answer = s.inner_ns.valid() ? 0 : s.inner_ns.get();
  }
  return static_cast<int>(-answer);
}

/// setns(2) makes the topmost mount at "/" root and working directory: nothing has to be pivoted.
status enter_copy(init_state& s) {
  const long answer = run_helper(1, 0, copy_main, &s);
  LAUNCH_TRY("copy", answer > 0 ? -answer : answer);
  LAUNCH_TRY("setns", sys::call(SYS_setns, s.inner_ns.get(), CLONE_NEWNS));
  return {};
}

long write_proc(const init_state& s, const char* path, const char* text) {
  const fd file(sys::call(SYS_openat, s.mounts.proc.get(), path, O_WRONLY | O_CLOEXEC));
  if (!file.valid()) return file.get();
  return sys::call(SYS_write, file.get(), text, strlen(text));
}

/// Ports below 1024 and ICMP echo sockets for every user inside. Through the sandbox's own /proc:
/// in one that is used for many networks the kernel keeps their files of one name in one hash
/// chain.
status open_network(init_state& s) {
  char range[24];
  snprintf(range, sizeof range, "%u %u", s.plan.root_id, s.plan.root_id + last_inner_id);
  LAUNCH_TRY("ping", write_proc(s, "sys/net/ipv4/ping_group_range", range));
  LAUNCH_TRY("ports", write_proc(s, "sys/net/ipv4/ip_unprivileged_port_start", "0"));
  return {};
}

/// Written with CAP_SYS_RESOURCE, oom_score_adj is also the least value that we and our children
/// may set later; the old oom_adj (proc(5)) lowers the value alone. So commands cannot make
/// themselves as safe as aether.
status protect_from_oom(init_state& s) {
  if (!s.plan.set_oom_score) return {};
  char text[16];
  snprintf(text, sizeof text, "%d", oom_score);
  LAUNCH_TRY("floor", write_proc(s, "self/oom_score_adj", text));
  LAUNCH_TRY("score", write_proc(s, "self/oom_adj", oom_adj));
  return {};
}

/// Signals for the launcher's process group are not for us.
status leave_session(init_state&) {
  LAUNCH_TRY("setsid", sys::call(SYS_setsid));
  return {};
}

status drop_privileges(init_state& s) {
  return become_unprivileged(s.plan.aether_uid);
}

status execute(init_state&) {
  // All but the reserved numbers close at exec; these three have no such flag.
  sys::call(SYS_close_range, 0, 2, 0);
  const char* const argv[] = {"aether", nullptr};
  const char* const envp[] = {nullptr};
  return failed("execveat", sys::call(SYS_execveat, image_number, "", argv, envp, AT_EMPTY_PATH));
}

struct init_step {
  const char* name;
  status (*run)(init_state&);
};
constexpr init_step init_steps[] = {
    {"init groups", join_groups},    {"init namespaces", join_namespaces},
    {"init fds", take_own_fds},      {"init hostname", set_hostname},
    {"init tree", build_tree},       {"init net", open_network},
    {"init copy", enter_copy},       {"init oom", protect_from_oom},
    {"init session", leave_session}, {"init drop", drop_privileges},
    {"init exec", execute},
};

int init_main(void* argument) {
  auto& request = *static_cast<init_request*>(argument);
  init_state state{request.plan, request.texts, {}, {}};
  for (const auto& step : init_steps) {
    const step_timer timer(step.name);
    request.result = failpoint(step.name);
    if (request.result.ok()) request.result = step.run(state);
    if (!request.result.ok()) break;
  }
  return 1;
}

}  // namespace

status reserved_fds::reserve() {
  fd filler(sys::call(SYS_openat, AT_FDCWD, "/", O_PATH | O_CLOEXEC));
  LAUNCH_TRY("filler", filler.get());
  for (int n = first_reserved; n <= filler_number; ++n) {
    if (n != filler.get()) LAUNCH_TRY("reserve", sys::call(SYS_dup3, filler.get(), n, O_CLOEXEC));
  }
  if (filler.get() <= filler_number) [[maybe_unused]]
    const int stays = filler.release();
  return {};
}

reserved_fds::~reserved_fds() {
  for (int n = first_reserved; n < end_reserved; ++n) {
    if (placed_[static_cast<std::size_t>(n)]) sys::call(SYS_dup3, filler_number, n, O_CLOEXEC);
  }
}

status reserved_fds::place(int number, int source) {
  LAUNCH_TRY("place", sys::call(SYS_dup2, source, number));
  placed_[static_cast<std::size_t>(number)] = true;
  return {};
}

status start_init(const init_plan& plan, init_result& result) {
  init_request request{plan, tree_texts(plan.root_id, plan.shm_bytes), {}};
  int pidfd = -1;
  clone_args arguments{};
  arguments.flags = CLONE_NEWPID | CLONE_VFORK | CLONE_FILES | CLONE_PIDFD | CLONE_INTO_CGROUP;
  arguments.pidfd = reinterpret_cast<std::uintptr_t>(&pidfd);
  arguments.exit_signal = SIGCHLD;
  arguments.cgroup = static_cast<std::uint64_t>(plan.cgroup);
  const long pid = start_child(arguments, child_stack(0), init_main, &request);
  LAUNCH_TRY("clone", pid);
  result.pid = pid;
  result.pidfd = fd(pidfd);
  if (request.result.ok()) return {};
  wait_child(pid);
  result = {};
  return request.result;
}

}  // namespace dsec::launcher

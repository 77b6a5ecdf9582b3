// The timed part: every step that a sandbox of the container backend needs, in an order that works,
// and the way back (sandbox.hpp).
#include "floor/sandbox.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/mount.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <utility>

#include "floor/kernel.hpp"

namespace floor_bench {
namespace {

constexpr char hostname[] = "floor";

/// What the kernel had to say about a refused mount goes to standard error.
void show_messages(long context) {
  char text[256];
  for (long n = 0; (n = call(__NR_read, context, text, sizeof text)) > 0;)
    call(__NR_write, 2, text, n);
}

/// Overlay whose mounter's fsuid is the mapped root: else an id-mapped upper comes up read-only.
int build_overlay(const char* upper_path, int user_namespace) {
  const long context = must("overlay", call(__NR_fsopen, "overlay", FSOPEN_CLOEXEC));
  // A detached mount ends with its descriptor: they are kept until the overlay has its own.
  int lowers[max_layers + 1];
  int count = 0;
  for (const auto& path : ready.lowers) {
    const int lower = lowers[count++] = id_mapped(path.c_str(), user_namespace);
    must("lower", call(__NR_fsconfig, context, FSCONFIG_SET_FD, "lowerdir+", nullptr, lower));
  }
  const int upper = id_mapped(upper_path, user_namespace);
  const int u = open_at(upper, "u", O_PATH);
  const int w = open_at(upper, "w", O_PATH);
  must("upper", call(__NR_fsconfig, context, FSCONFIG_SET_FD, "upperdir", nullptr, u));
  must("work", call(__NR_fsconfig, context, FSCONFIG_SET_FD, "workdir", nullptr, w));
  must("volatile", call(__NR_fsconfig, context, FSCONFIG_SET_FLAG, "volatile", nullptr, 0));
  call(__NR_prctl, PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0);
  call(__NR_setfsgid, id_base);
  call(__NR_setfsuid, id_base);
  const long created = call(__NR_fsconfig, context, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0);
  if (created < 0) show_messages(context);
  must("overlay: create", created);
  call(__NR_setfsuid, 0);
  call(__NR_setfsgid, 0);
  call(__NR_prctl, PR_SET_SECUREBITS, 0, 0, 0, 0);
  const long root =
      must("overlay: fsmount", call(__NR_fsmount, context, FSMOUNT_CLOEXEC, MOUNT_ATTR_NODEV));
  while (count > 0) ::close(lowers[--count]);
  for (const int fd : {upper, u, w, static_cast<int>(context)}) ::close(fd);
  return static_cast<int>(root);
}

}  // namespace

/// What this process and its child share.
struct plan {
  const slot& s;
  const groups& g;
  const char* program;
  int channel;              // aether's end
  int root = -1, sys = -1;  // -1: they come by the channel
  int pts = -1, shm = -1, proc = -1, inner_ns = -1;
};

namespace {

/// What no layer is needed for: groups, namespaces, a table of descriptors of its own.
void enter_slot(plan& p) {
  must("fds", call(__NR_close_range, first_kept, ~0U, CLOSE_RANGE_UNSHARE));
  for (const int tasks : p.g.init_tasks) must("tasks", call(__NR_write, tasks, "0", 1));
  must("template", call(__NR_setns, ready.template_ns, CLONE_NEWNS));
  must("net", call(__NR_setns, p.s.net, CLONE_NEWNET));
  must("ipc", call(__NR_setns, p.s.ipc, CLONE_NEWIPC));
  must("uts", call(__NR_setns, p.s.uts, CLONE_NEWUTS));
  must("hostname", call(__NR_sethostname, hostname, sizeof hostname - 1));
}

void make_mounts(plan& p) {
  p.pts = make_devpts();
  p.shm = make_shm();
  p.proc = make_fs("proc", {}, no_programs);
}

void mount_tree(plan& p) {
  must("unshare", call(__NR_unshare, CLONE_NEWNS));
  attach(p.root, AT_FDCWD, "/");
  const int dev = clone_mount(p.root, "dev");
  mount_attr change = {};
  change.attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC;
  change.attr_clr = MOUNT_ATTR_NODEV;
  must("dev", call(__NR_mount_setattr, dev, "", AT_EMPTY_PATH, &change, sizeof change));
  attach(dev, p.root, "dev");
  attach(p.pts, dev, "pts");
  attach(p.shm, dev, "shm");
  attach(p.proc, p.root, "proc");
  attach(p.sys, p.root, "sys");
  const int nothing = clone_mount(AT_FDCWD, "/");
  const long masked =
      call(__NR_move_mount, nothing, "", p.sys, "firmware", MOVE_MOUNT_F_EMPTY_PATH);
  if (masked < 0 && masked != -ENOENT) give_up("firmware", masked);
}

/// A copy owned by the slot's user namespace, in which every mount is locked (mount_namespaces(7)).
int copy_tree(void* argument) {
  auto& p = *static_cast<plan*>(argument);
  must("setns user", call(__NR_setns, p.s.user, CLONE_NEWUSER));
  must("unshare", call(__NR_unshare, CLONE_NEWNS));
  p.inner_ns = open_at(p.proc, "self/ns/mnt", O_RDONLY);
  return 0;
}

void place_fds(const plan& p) {
  const auto place = [](int from, int to) {
    // dup3 refuses equal numbers; those of the floor are all above the reserved ones (main.cpp).
    must("dup", call(__NR_dup3, from, to, 0));
  };
  place(p.channel, fd_channel);
  place(p.s.user, fd_userns);
  place(p.g.command, fd_group);
  for (std::size_t i = 0; i < p.g.command_tasks.size(); ++i) {
    place(p.g.command_tasks[i], fd_tasks + static_cast<int>(i));
  }
}

union descriptors {
  cmsghdr header;
  char space[CMSG_SPACE(2 * sizeof(int))];
};

/// Of a parked PID 1: says that it waits, and takes root and /sys from whoever creates the sandbox.
void await_root(plan& p) {
  must("parked", call(__NR_write, p.channel, "p", 1));
  char byte;
  iovec part{&byte, 1};
  descriptors given{};
  msghdr message{nullptr, 0, &part, 1, &given, sizeof given, 0};
  must("root", call(__NR_recvmsg, p.channel, &message, MSG_CMSG_CLOEXEC));
  if (given.header.cmsg_len != CMSG_LEN(2 * sizeof(int))) give_up("no root came", -EIO);
  const auto* fds = reinterpret_cast<const int*>(CMSG_DATA(&given.header));
  p.root = fds[0];
  p.sys = fds[1];
}

void send_root(int channel, int root, int sys) {
  char byte = 'r';
  iovec part{&byte, 1};
  descriptors given{};
  given.header.cmsg_len = CMSG_LEN(2 * sizeof(int));
  given.header.cmsg_level = SOL_SOCKET;
  given.header.cmsg_type = SCM_RIGHTS;
  auto* fds = reinterpret_cast<int*>(CMSG_DATA(&given.header));
  fds[0] = root;
  fds[1] = sys;
  const msghdr message{nullptr, 0, &part, 1, &given, sizeof given, 0};
  must("send root", call(__NR_sendmsg, channel, &message, 0));
}

int init_main(void* argument) {
  auto& p = *static_cast<plan*>(argument);
  enter_slot(p);
  make_mounts(p);
  if (p.root < 0) await_root(p);
  mount_tree(p);
  run_helper(0, copy_tree, &p, 1);
  // The topmost mount at "/" becomes the root: nothing has to be pivoted (setns(2)).
  must("copy", call(__NR_setns, p.inner_ns, CLONE_NEWNS));
  call(__NR_setsid);
  const unsigned id = aether_id;
  must("setgroups", call(__NR_setgroups, 1, &id));
  must("setresgid", call(__NR_setresgid, id, id, id));
  must("setresuid", call(__NR_setresuid, id, id, id));
  place_fds(p);
  const char tasks[] = {static_cast<char>('0' + p.g.command_tasks.size()), '\0'};
  const char* const argv[] = {"aether", tasks, p.program, nullptr};
  const char* const envp[] = {nullptr};
  must("exec aether", call(__NR_execveat, ready.aether, "", argv, envp, AT_EMPTY_PATH));
  return 9;
}

constexpr unsigned long init_flags = CLONE_NEWPID | CLONE_FILES;

std::pair<int, int> open_channel() {
  int ends[2];
  must("socketpair", call(__NR_socketpair, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
  return {ends[0], ends[1]};
}

/// Above the line, so that no child copies it.
int keep(int fd) {
  const long kept = must("keep", ::fcntl(fd, F_DUPFD_CLOEXEC, first_kept));
  ::close(fd);
  return static_cast<int>(kept);
}

void await_result(int channel) {
  char result = 0;
  if (call(__NR_read, channel, &result, 1) != 1 || result != 'k') {
    give_up("the program failed", -EIO);
  }
}

}  // namespace

sandbox create(const slot& s, const groups& g, const char* program) {
  const int root = build_overlay(s.home.c_str(), s.user);
  const int sys = clone_mount(AT_FDCWD, "/sys");
  const auto [ours, theirs] = open_channel();
  plan p{s, g, program, theirs, root, sys};
  sandbox made;
  made.pid = static_cast<int>(start_child(0, init_flags | CLONE_VFORK, g.init, init_main, &p));
  for (const int fd : {theirs, root, sys}) ::close(fd);
  made.channel = keep(ours);
  await_result(made.channel);
  return made;
}

parked park(const slot& s, const groups& g, const char* program) {
  const auto [ours, theirs] = open_channel();
  parked made;
  made.shared = std::make_shared<plan>(s, g, program, theirs);
  made.init.pid =
      static_cast<int>(start_child(0, init_flags, g.init, init_main, made.shared.get()));
  char byte = 0;
  if (call(__NR_read, ours, &byte, 1) != 1) give_up("nothing was parked", -EIO);
  ::close(theirs);
  made.init.channel = keep(ours);
  return made;
}

sandbox create(const parked& waiting) {
  const slot& s = waiting.shared->s;
  const int root = build_overlay(s.home.c_str(), s.user);
  const int sys = clone_mount(AT_FDCWD, "/sys");
  send_root(waiting.init.channel, root, sys);
  for (const int fd : {root, sys}) ::close(fd);
  await_result(waiting.init.channel);
  return waiting.init;
}

void destroy(sandbox& s) {
  ::kill(s.pid, SIGKILL);
  ::waitpid(s.pid, nullptr, 0);
  ::close(s.channel);
  s = {};
}

}  // namespace floor_bench

// Set-up and service of the spawner (spawner.hpp).
#include "guest/aether/spawner.hpp"

#include <linux/mman.h>
#include <linux/openat2.h>
#include <linux/prctl.h>

#include "guest/aether/clone_child.hpp"
#include "guest/aether/exec_child.hpp"
#include "guest/aether/fd.hpp"
#include "guest/aether/filter.hpp"
#include "guest/aether/text.hpp"

namespace dsec::guest::aether {
namespace {

constexpr size_t stack_bytes = 32768;
constexpr uint32_t slab_pointers = 2048;
constexpr int link_fd =
    3;  // the spawner's descriptors: 0-2, the link, the tasks files, then those of a start
constexpr int first_tasks = 4;

/// What a child on shared memory uses between clone and exec. Only touched pages exist.
struct slab {
  alignas(16) char stack[stack_bytes];
  char* pointers[slab_pointers];
  child_plan plan;
  char strings[max_inline_strings];
};

struct {
  slab slabs[slab_count];
  slab copied;  // for children with a memory of their own
  struct {
    start_request request;
    char strings[max_inline_strings];
  } received;
  uint32_t tasks_count;
} memory;

void require(long result, spawner_step step) {
  if (result < 0) sys::exit(step);
}

/// While still in aether's credentials, so that the file belongs to it. Best effort: a host may
/// forbid it. `proc` was opened before anything ran inside; what root inside has mounted over it
/// since is not entered.
void set_oom_score(int proc, int32_t score) {
  sys::call(__NR_prctl, PR_SET_DUMPABLE, 1);
  fixed_text<32> path, text;
  path.add(static_cast<uint64_t>(sys::call(__NR_getpid))).add("/oom_score_adj");
  struct open_how how = {};
  how.flags = O_WRONLY | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS;
  const unique_fd file(sys::call(__NR_openat2, proc, path.c_str(), &how, sizeof how));
  if (score < 0) text.add("-");
  text.add(static_cast<uint64_t>(score < 0 ? -int64_t{score} : score));
  if (file) sys::write(file.get(), text.c_str(), text.size());
  sys::call(__NR_prctl, PR_SET_DUMPABLE, 0);
}

/// Leaves 0-2, the link, the tasks files and, last, the user namespace; returns the latter's
/// number.
int arrange_descriptors(int link, uint32_t tasks_count) {
  constexpr int high = 64;
  const long high_link = sys::call(__NR_fcntl, link, F_DUPFD_CLOEXEC, high);
  const long high_ns = sys::call(__NR_fcntl, fd_userns, F_DUPFD_CLOEXEC, high);
  require(high_link, spawner_descriptors);
  require(high_ns, spawner_descriptors);
  require(sys::call(__NR_dup3, high_link, link_fd, O_CLOEXEC), spawner_descriptors);
  const int tasks = static_cast<int>(tasks_count);
  for (int i = 0; i < tasks; ++i) {
    require(sys::call(__NR_dup3, fd_tasks + i, first_tasks + i, O_CLOEXEC), spawner_descriptors);
  }
  const int ns = first_tasks + tasks;
  require(sys::call(__NR_dup3, high_ns, ns, O_CLOEXEC), spawner_descriptors);
  require(sys::call(__NR_close_range, ns + 1, ~0U, 0), spawner_descriptors);
  return ns;
}

/// Inherited by every command. Above the hard limit that aether was given nothing can be had.
void set_limits(const boot_body& boot) {
  struct rlimit64 files = {};
  require(sys::call(__NR_prlimit64, 0, RLIMIT_NOFILE, nullptr, &files), spawner_limits);
  if (boot.nofile != 0 && boot.nofile < files.rlim_max) files.rlim_max = boot.nofile;
  files.rlim_cur = files.rlim_max;
  require(sys::call(__NR_prlimit64, 0, RLIMIT_NOFILE, &files), spawner_limits);
  struct rlimit64 core = {};
  require(sys::call(__NR_prlimit64, 0, RLIMIT_CORE, nullptr, &core), spawner_limits);
  core = core_limits(core.rlim_max);
  require(sys::call(__NR_prlimit64, 0, RLIMIT_CORE, &core), spawner_limits);
}

/// Root inside, keeping the supplementary group that only aether's side of the world knows: it is
/// what lets clone put children into the command groups. Every command drops it.
void enter_namespace(int ns) {
  require(sys::call(__NR_setns, ns, CLONE_NEWUSER), spawner_namespace);
  sys::close(ns);
  require(sys::call(__NR_setresgid, 0, 0, 0), spawner_ids);
  require(sys::call(__NR_setresuid, 0, 0, 0), spawner_ids);
  sys::call(__NR_prctl, PR_SET_DUMPABLE, 0);  // changing ids may have set it: prctl(2)
  require(load_sandbox_filter(), spawner_filter);
}

void say(tell what) {
  struct iovec part = {&what, sizeof what};
  sys::message m = {};
  m.parts = &part;
  m.part_count = 1;
  sys::send(link_fd, &m);
}

void report(int status_fd, failure why, long negative_errno) {
  const status_record record = {.failure = static_cast<uint32_t>(why),
                                .value = static_cast<int32_t>(-negative_errno)};
  sys::write(status_fd, &record, sizeof record);
}

void child_entry(void* plan) {
  run_child(*static_cast<child_plan*>(plan));
}

void start_child(slab& room, const int* fds, bool shared) {
  clone_args how = {};
  how.flags = CLONE_PARENT | CLONE_INTO_CGROUP | (shared ? CLONE_VM : 0);
  how.cgroup = static_cast<uint64_t>(fds[start_group]);
  if (shared) {
    how.stack = reinterpret_cast<uint64_t>(room.stack);
    how.stack_size = stack_bytes;
  }
  const long pid = clone_child(how, child_entry, &room.plan);
  if (pid < 0) report(fds[start_status], failure::resources, pid);
}

/// Strings that did not fit into a datagram, or too many of them: a mapping for this one start. The
/// child gets a copy of it, so it goes as soon as the child exists.
void start_large(const start_request& request, const int* fds) {
  const uint64_t pointer_bytes = pointers_needed(request.argc, request.envc) * sizeof(char*);
  const uint64_t bytes = pointer_bytes + request.strings_length;
  const long mapped =
      sys::call(__NR_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped < 0 && mapped > -4096) return report(fds[start_status], failure::resources, mapped);
  auto** pointers = reinterpret_cast<char**>(mapped);
  char* strings = reinterpret_cast<char*>(mapped) + pointer_bytes;
  uint32_t have = 0;
  if (request.payload == 0) {
    copy_bytes(strings, memory.received.strings, request.strings_length);
    have = request.strings_length;
  }
  while (have < request.strings_length) {
    const long n =
        sys::pread(fds[start_payload], strings + have, request.strings_length - have, have);
    if (n <= 0) break;
    have += static_cast<uint32_t>(n);
  }
  child_plan& plan = memory.copied.plan;
  if (have == request.strings_length &&
      cut_strings(strings, have, request.argc, request.envc, pointers, plan.strings)) {
    start_child(memory.copied, fds, false);
  } else {
    report(fds[start_status], failure::bad_request, -EINVAL);
  }
  sys::call(__NR_munmap, mapped, bytes);
}

void prepare(child_plan& plan, const start_request& request, const int* fds) {
  plan.request = request;
  for (uint32_t i = 0; i < start_fd_max; ++i) plan.fds[i] = fds[i];
  plan.first_tasks_fd = first_tasks;
  plan.tasks_count = memory.tasks_count;
}

/// Program text is all that a program shares with us until exec; a file command lives on, so it
/// gets a copy.
bool may_share(const start_request& request) {
  return request.slab >= 0 && request.slab < slab_count &&
         request.kind <= static_cast<uint32_t>(exec_kind::shell);
}

/// `received` in the places of enum start_fd; -1 where there is none.
void place(const int* received, const start_request& request, int (&fds)[start_fd_max]) {
  for (uint32_t i = 0; i < start_stdin; ++i) fds[i] = *received++;
  fds[start_stdin] = request.input != 0 ? *received++ : -1;
  fds[start_payload] = request.payload != 0 ? *received : -1;
}

void start(const int* received) {
  const start_request& request = memory.received.request;
  int fds[start_fd_max];
  place(received, request, fds);
  if (request.payload != 0 || pointers_needed(request.argc, request.envc) > slab_pointers) {
    prepare(memory.copied.plan, request, fds);
    return start_large(request, fds);
  }
  const bool shared = may_share(request);
  slab& room = shared ? memory.slabs[request.slab] : memory.copied;
  prepare(room.plan, request, fds);
  copy_bytes(room.strings, memory.received.strings, request.strings_length);
  if (!cut_strings(room.strings, request.strings_length, request.argc, request.envc, room.pointers,
                   room.plan.strings)) {
    return report(fds[start_status], failure::bad_request, -EINVAL);
  }
  start_child(room, fds, shared);
}

[[noreturn]] void serve() {
  const int first_free = first_tasks + static_cast<int>(memory.tasks_count);
  for (;;) {
    sys::rights<start_fd_max> rights;
    struct iovec part = {&memory.received, sizeof memory.received};
    sys::message m = {};
    m.parts = &part;
    m.part_count = 1;
    m.control = &rights;
    m.control_length = sizeof rights;
    const long n = sys::receive(link_fd, &m, 0);
    if (n == -EINTR) continue;
    if (n <= 0) sys::exit(spawner_done);  // aether is gone
    const start_request& request = memory.received.request;
    const size_t wanted = start_stdin + request.input + request.payload;
    if (request.what == ask::ping) {
      say(tell::pong);
    } else if ((m.flags & sys::msg_ctrunc) != 0 || rights.received(m.control_length) != wanted) {
      say(tell::broken);
    } else {
      start(rights.fds);
    }
    if (request.what == ask::start) sys::call(__NR_close_range, first_free, ~0U, 0);
  }
}

}  // namespace

void run_spawner(int link, int proc, const boot_body& boot) {
  sys::call(__NR_prctl, PR_SET_NAME, "spawner");
  memory.tasks_count = boot.tasks_count;
  set_oom_score(proc, boot.oom_score_adj);
  const int ns = arrange_descriptors(link, boot.tasks_count);
  set_limits(boot);
  enter_namespace(ns);
  say(tell::ready);
  serve();
}

}  // namespace dsec::guest::aether

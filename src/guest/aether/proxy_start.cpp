// From an exec datagram to a running program: everything until exec has been seen or has failed
// (proxy.hpp).
#include "guest/aether/proxy.hpp"

namespace dsec::guest::aether {
namespace {

constexpr uint64_t ms = 1'000'000;
constexpr uint64_t start_limit = 4000 * ms;  // dsecd promises a typed result within 5 s
constexpr uint64_t start_recheck = 500 * ms;

struct pipe_ends {
  unique_fd read, write;
};

/// The read end never blocks. The mode lets whoever holds the pipe open it again as /dev/stdout:
/// the inode belongs to aether's uid, which is nobody inside, and no one without the descriptor can
/// reach it.
long make_output_pipe(pipe_ends& out) {
  int ends[2] = {};
  if (const long r = sys::call(__NR_pipe2, ends, O_CLOEXEC); r < 0) return r;
  out.read = unique_fd(ends[0]);
  out.write = unique_fd(ends[1]);
  sys::call(__NR_fchmod, ends[1], 0666);
  return sys::call(__NR_fcntl, ends[0], F_SETFL, O_NONBLOCK);
}

long make_status_pipe(pipe_ends& out) {
  int ends[2] = {};
  if (const long r = sys::call(__NR_pipe2, ends, O_CLOEXEC | O_NONBLOCK); r < 0) return r;
  out.read = unique_fd(ends[0]);
  out.write = unique_fd(ends[1]);
  return 0;
}

start_request request_of(const exec_body& e) {
  return {.what = ask::start,
          .kind = e.kind,
          .slab = no_slab,
          .argc = e.argc,
          .envc = e.envc,
          .strings_length = e.strings_length,
          .input = (e.flags & exec_no_input) == 0 ? 1U : 0U,
          .payload = e.payload_fd,
          .mode = e.mode,
          .offset = e.offset,
          .length = e.length};
}

}  // namespace

void proxy::accept(datagram& d, const exec_body& e, known_command& k, live_command& c) {
  c.state = phase::queued;
  c.known = &k;
  k.live = live_.index(c);
  c.cap = e.spool_cap;
  c.waiting.request = request_of(e);
  unique_fd* next = d.fds;
  if (c.waiting.request.input != 0) c.stdin_fd = static_cast<unique_fd&&>(*next++);
  for (int i = 0; i < 2; ++i) c.out[i].spool = static_cast<unique_fd&&>(*next++);
  if (c.waiting.request.payload != 0) c.waiting.payload = static_cast<unique_fd&&>(*next);
  c.start = sys::monotonic_ns();
  c.start_realtime = sys::realtime_ns();
  if (e.timeout_ms != 0 && e.timeout_ms < UINT64_MAX / ms - c.start / ms) {
    c.timeout_at = c.start + e.timeout_ms * ms;
  }
  launch(c, d.bytes + sizeof(header) + sizeof(exec_body));
}

void proxy::launch(live_command& c, const char* strings) {
  const long r = spawner_.ready() ? hand_over(c, strings) : -EAGAIN;
  if (r == 0) {
    c.waiting.drop();
  } else if (r != -EAGAIN) {
    start_fails(c, failure::resources, static_cast<int32_t>(-r));
  } else if (!c.waiting.waits) {  // its first try: keep what the next one needs
    if (!c.waiting.keep(strings)) return start_fails(c, failure::resources, ENOMEM);
    c.give_up_at = c.start + start_limit;
    spawner_.want_writable(true, events_);
    spawner_.wake(c.start, events_);
  }
}

/// Makes the group and the pipes and gives the start to the spawner. On failure nothing of it is
/// left.
long proxy::hand_over(live_command& c, const char* strings) {
  groups::taken group = groups_.take();
  if (group.error < 0) return group.error == -EAGAIN ? -EBUSY : group.error;
  pipe_ends out[2], status;
  long r = make_status_pipe(status);
  for (int i = 0; i < 2 && r >= 0; ++i) r = make_output_pipe(out[i]);
  if (r >= 0) {
    int fds[start_fd_max] = {out[0].write.get(), out[1].write.get(), status.write.get(),
                             group.dir.get()};
    size_t count = start_stdin;
    if (c.stdin_fd) fds[count++] = c.stdin_fd.get();
    if (c.waiting.payload) fds[count++] = c.waiting.payload.get();
    c.oom_before = oom_kills_of_all();
    r = spawner_.send(c.waiting.request, strings, fds, count, sys::monotonic_ns(), c.lease);
  }
  if (r < 0) {
    groups_.give_back(group.index);
    return r;
  }
  c.group = group.index;
  c.status_pipe = static_cast<unique_fd&&>(status.read);
  for (int i = 0; i < 2; ++i) c.out[i].pipe = static_cast<unique_fd&&>(out[i].read);
  watch_start(c, sys::monotonic_ns());
  return 0;
}

void proxy::watch_start(live_command& c, uint64_t now) {
  c.state = phase::starting;
  c.stdin_fd.reset();
  c.give_up_at = now + start_limit;
  const uint16_t index = live_.index(c);
  // No EPOLLIN: the child's first word (its pid) needs no wake-up, only the close of the pipe does.
  events_.add(c.status_pipe.get(), {source::status, index}, 0);
  for (uint16_t i = 0; i < 2; ++i) {
    events_.add(c.out[i].pipe.get(), {source::output, index, i}, EPOLLIN);
  }
}

void proxy::serve_queue() {
  live_command* c = live_.first_queued();
  while (c != nullptr && spawner_.ready()) {
    launch(*c, c->waiting.strings);
    live_command* next = live_.first_queued();
    if (next == c) break;  // the socket is full again
    c = next;
  }
  spawner_.want_writable(c != nullptr, events_);
}

void proxy::read_status(live_command& c) {
  while (c.state == phase::starting) {
    status_record record = {};
    const long n = sys::read(c.status_pipe.get(), &record, sizeof record);
    if (n == sizeof record && record.failure == 0) {
      c.pid = record.value;
    } else if (n == sizeof record) {
      c.failure = record.failure;
      c.failure_errno = record.value;
    } else if (n == -EAGAIN || n == -EINTR) {
      return;
    } else {  // closed: exec was seen, or the child is dead
      spawner_.answered(c.lease, sys::monotonic_ns());
      spawner_.give_back(c.lease);
      c.status_pipe.reset();
      if (c.failure != 0) {
        start_fails(c, static_cast<failure>(c.failure), c.failure_errno);
      } else if (c.pid == 0) {
        start_fails(c, failure::spawner, ECHILD);
      } else {
        mark_started(c);
      }
      return;
    }
  }
}

void proxy::mark_started(live_command& c) {
  c.state = phase::running;
  c.give_up_at = UINT64_MAX;
  known_command& k = *c.known;
  k.state = command_state::started;
  k.started.start_realtime_ns = c.start_realtime;
  k.started.pid = c.pid;
  channel_.post(msg::started, k.started);
  if (c.killed || c.timed_out) kill_group(c);  // the first kill may have come before the clone
}

void proxy::start_fails(live_command& c, failure why, int32_t number) {
  // Ended by us before its first instruction: then that is what happened to it.
  if (c.killed || c.timed_out) {
    c.wait_status = SIGKILL;
    c.end = sys::monotonic_ns();
    return finish(c);
  }
  known_command& k = *c.known;
  k.state = command_state::failed;
  k.failed.failure = static_cast<uint32_t>(why);
  k.failed.sys_errno = number;
  k.seq = channel_.post(msg::failed, k.failed);
  if (c.group >= 0) groups_.give_back(c.group);
  live_.release(c);
}

void proxy::on_start_limit(live_command& c, uint64_t now) {
  if (c.state == phase::starting) {
    read_status(c);
    if (c.state != phase::starting) return;
    // A program that comes from a slow layer may take its time; one that is stopped will never
    // start.
    const bool slow =
        c.pid != 0 && !c.killed && !c.timed_out && c.failure == 0 && !is_stopped(c.pid);
    if (slow) {
      c.give_up_at = now + start_recheck;
      return;
    }
    groups_.kill(c.group);
    spawner_.answered(c.lease, now);
    spawner_.abandon(c.lease, static_cast<unique_fd&&>(c.status_pipe));
  }
  if (c.failure != 0) return start_fails(c, static_cast<failure>(c.failure), c.failure_errno);
  start_fails(c, failure::spawner, ETIMEDOUT);
}

}  // namespace dsec::guest::aether

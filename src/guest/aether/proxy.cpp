// The loop, and everything that happens because time has passed (proxy.hpp).
#include "guest/aether/proxy.hpp"

namespace dsec::guest::aether {
namespace {

constexpr uint64_t ms = 1'000'000;
/// For a killed main process that a tracer inside keeps from being reaped, or that gets no CPU time
/// to die in among thousands of others. A time limit of 2 s and this leave 1.5 s of the 5 s in
/// which a result is promised.
constexpr uint64_t kill_limit = 1500 * ms;
constexpr uint64_t drain_tick = 10 * ms;

}  // namespace

void proxy::run(const boot_body& boot) {
  boot_ = boot;
  open_event_sources();
  struct rlimit64 files = {};
  sys::call(__NR_prlimit64, 0, RLIMIT_NOFILE, nullptr, &files);
  live_.fit(files.rlim_cur);
  spawner_.configure(boot);
  spawner_.ensure(sys::monotonic_ns(), events_);
  epoll_event batch[poller::batch];
  for (;;) {
    const long n = events_.wait(batch, timeout_ms());
    for (long i = 0; i < n; ++i) dispatch(poller::token_of(batch[i]), batch[i].events);
    after_batch();
  }
}

void proxy::open_event_sources() {
  const unsigned long child_signal = 1UL << (SIGCHLD - 1);
  constexpr int close_on_exec = 02000000, non_blocking = 04000;  // SFD_*
  signals_ = unique_fd(sys::call(__NR_signalfd4, -1, &child_signal, sizeof child_signal,
                                 close_on_exec | non_blocking));
  if (!events_.open() || !signals_) sys::exit(exit_no_kernel_object);
  events_.add(fd_channel, {source::channel}, EPOLLIN);
  events_.add(signals_.get(), {source::signals}, EPOLLIN);
}

void proxy::dispatch(token t, uint32_t events) {
  live_command& c =
      live_.at(t.index);  // may have been freed by an earlier event of the batch; handlers look
  switch (t.from) {
    case source::channel:
      return on_channel(events);
    case source::spawner:
      return on_spawner(events);
    case source::signals: {
      char info[128 * 4];
      sys::read(signals_.get(), info, sizeof info);
      reap_again_ = true;
      return;
    }
    case source::status:
      return read_status(c);
    case source::output:
      return on_output(c, t.stream);
  }
}

void proxy::after_batch() {
  // Last, so that what a child said before it died has been heard.
  if (reap_again_) reap();
  on_time(sys::monotonic_ns());
  channel_.flush();
  if (channel_.wants_write() != channel_writable_wanted_) {
    channel_writable_wanted_ = !channel_writable_wanted_;
    events_.change(fd_channel, {source::channel},
                   EPOLLIN | (channel_writable_wanted_ ? EPOLLOUT : 0U));
  }
}

int proxy::timeout_ms() {
  if (reap_again_) return 0;
  uint64_t next = spawner_.next_tick();
  const auto earlier = [&](uint64_t t) { next = t < next ? t : next; };
  earlier(groups_.next_check());
  live_.each([&](const live_command& c) {
    earlier(c.timeout_at);
    earlier(c.check_at);
    earlier(c.give_up_at);
  });
  if (next == UINT64_MAX) return -1;
  const uint64_t now = sys::monotonic_ns();
  if (next <= now) return 0;
  const uint64_t wait = (next - now + ms - 1) / ms;
  return wait > 60'000 ? 60'000 : static_cast<int>(wait);
}

void proxy::on_time(uint64_t now) {
  spawner_.tick(now, events_);
  if (now >= groups_.next_check()) groups_.check(now);
  live_.each([&](live_command& c) { on_command_time(c, now); });
}

void proxy::on_command_time(live_command& c, uint64_t now) {
  if (now >= c.timeout_at) {
    c.timeout_at = UINT64_MAX;
    if (c.state != phase::draining) return kill(c, reason::time);  // it may be gone
  }
  if (now >= c.give_up_at) {
    if (c.state == phase::starting || c.state == phase::queued) return on_start_limit(c, now);
    if (c.state == phase::running) {
      c.wait_status = SIGKILL;
      c.end = now;
      c.pid = 0;  // whenever it can be reaped, it is nobody's
      drain(c);
    }
    return finish(c);
  }
  if (now >= c.check_at) {
    c.check_at = now + drain_tick;
    if (c.state == phase::draining) end_or_drain(c);
  }
}

void proxy::kill(live_command& c, reason why) {
  // One whose main process is dead has its verdict already, and the first reason stands.
  if (c.state != phase::draining && !c.killed && !c.timed_out) {
    (why == reason::time ? c.timed_out : c.killed) = true;
  }
  if (c.state == phase::queued) return start_fails(c, failure::resources, ECANCELED);
  kill_group(c);
}

void proxy::kill_group(live_command& c) {
  groups_.kill(c.group);
  const uint64_t limit = sys::monotonic_ns() + kill_limit;
  const bool dies = c.state == phase::running || c.state == phase::starting;
  if (dies && c.give_up_at > limit) c.give_up_at = limit;
}

void proxy::on_spawner(uint32_t events) {
  if ((events & (EPOLLIN | EPOLLHUP)) != 0 &&
      spawner_.on_readable(sys::monotonic_ns()) == spawner_link::news::became_ready &&
      !hello_said_) {
    hello_said_ = true;
    channel_.say_hello(live_.count());
    channel_.flush();
    // The first command's group, while its exec is on the way. Before, while the spawner sets
    // itself up, it would stand in its way: a forked child starts on its parent's CPU.
    groups_.prepare(boot_.oom_v2 == oom_by_group);
  }
  serve_queue();
}

void proxy::leave() {
  groups_.kill_used();  // at once and all together; the pid namespace ends with us anyway
  sys::exit(exit_channel_closed);
}

}  // namespace dsec::guest::aether

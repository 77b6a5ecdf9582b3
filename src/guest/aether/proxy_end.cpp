// From a dead process to a result: reaping, draining, the verdict (proxy.hpp). A command ends when
// its main process does; whatever else lives in its group is killed then.
#include <linux/wait.h>

#include "guest/aether/proxy.hpp"
#include "guest/aether/text.hpp"

namespace dsec::guest::aether {
namespace {

constexpr uint64_t ms = 1'000'000;
constexpr uint64_t drain_limit = 2000 * ms;
constexpr uint64_t drain_tick = 10 * ms;
constexpr int reap_batch = 64;   // orphans of a fork bomb must not hold up the rest
constexpr int drain_batch = 32;  // buffers; a pipe holds at most 16

bool killed_by_signal(int wait_status, int signal) {
  return (wait_status & 0x7f) == signal;
}
bool exited_with(int wait_status, int code) {
  return (wait_status & 0x7f) == 0 && (wait_status >> 8 & 0xff) == code;
}

}  // namespace

void proxy::reap() {
  for (int i = 0; i < reap_batch; ++i) {
    int status = 0;
    const long pid = sys::call(__NR_wait4, -1, &status, WNOHANG | __WALL, nullptr);
    if (pid <= 0) {
      reap_again_ = false;
      return;
    }
    on_reaped(static_cast<int>(pid), status);
  }
}

void proxy::on_reaped(int pid, int status) {
  const uint64_t now = sys::monotonic_ns();
  if (spawner_.is(pid)) {
    const auto death = spawner_.on_death(now);
    if (death == spawner_link::death::never_ready)
      sys::exit(exit_no_spawner + (status >> 8 & 0xff));
    if (death == spawner_link::death::lost) channel_.post(msg::degraded, 2 * live_.count());
    if (death == spawner_link::death::retired) groups_.shrink();
    return;
  }
  live_command* c = live_.of_pid(pid);
  if (c == nullptr) {  // an orphan, or a child whose first word has not been read
    live_.each([&](live_command& each) {
      if (each.state == phase::starting && each.pid == 0) read_status(each);
    });
    c = live_.of_pid(pid);
    if (c == nullptr) return;
  }
  if (c->state == phase::starting) {
    read_status(*c);
    if (c->state == phase::free) return;  // exec had failed
  }
  // The pipe may be open in the spawner still, but the child is dead.
  if (c->state == phase::starting) {
    spawner_.answered(c->lease, now);
    spawner_.give_back(c->lease);
    c->status_pipe.reset();
    if (c->failure != 0) return start_fails(*c, static_cast<failure>(c->failure), c->failure_errno);
    mark_started(*c);
  }
  c->state = phase::draining;
  c->pid = 0;
  c->wait_status = status;
  c->end = now;
  c->check_at = now + drain_tick;
  c->give_up_at = now + drain_limit;
  if (groups::populated(c->group)) groups_.kill(c->group);
  end_or_drain(*c);
}

void proxy::on_output(live_command& c, int stream) {
  if (c.state == phase::free) return;
  c.out[stream].pump(c.cap);
  if (c.state == phase::draining && !c.out[0].pipe && !c.out[1].pipe) finish(c);
}

void proxy::drain(live_command& c) {
  for (output_stream& stream : c.out) {
    int n = 0;
    while (n < drain_batch && stream.pump(c.cap) == output_stream::progress::data) ++n;
  }
}

void proxy::end_or_drain(live_command& c) {
  // Asked first: when the group is empty before the last read, that read was the last word.
  const bool alone = !groups::populated(c.group);
  drain(c);
  if (alone || (!c.out[0].pipe && !c.out[1].pipe)) finish(c);
}

void proxy::finish(live_command& c) {
  known_command& k = *c.known;
  exited_body& e = k.exited;
  k.state = command_state::exited;
  e.status = c.wait_status;
  e.flags = (c.timed_out ? exited_timed_out : 0U) | (c.killed ? exited_killed : 0U);
  e.duration_us = (c.end - c.start) / 1000;
  e.start_realtime_ns = c.start_realtime;
  for (int i = 0; i < 2; ++i) e.total[i] = c.out[i].total;
  if (e.flags == 0 && out_of_memory(c)) e.flags = exited_oom;
  k.seq = channel_.post(msg::exited, e);
  channel_.flush();  // the rest is house-keeping
  if (c.group >= 0) groups_.give_back(c.group);
  live_.release(c);
}

/// By the group's own counter where there is one. Version 1 counts for all commands together: then
/// the main process must look killed as well, and two that are killed in one moment may both say
/// so.
bool proxy::out_of_memory(const live_command& c) {
  if (boot_.oom_v2 == oom_by_group) return c.group >= 0 && groups_.oom_kills(c.group) != 0;
  const bool looks_killed =
      killed_by_signal(c.wait_status, SIGKILL) || exited_with(c.wait_status, 137);
  return looks_killed && oom_kills_of_all() > c.oom_before;
}

uint64_t proxy::oom_kills_of_all() const {
  if (boot_.oom_v2 != oom_by_sandbox) return 0;
  char text[256];
  const long n = sys::pread(fd_oom, text, sizeof text, 0);
  return n > 0 ? keyed_value(text, static_cast<size_t>(n), "oom_kill ") : 0;
}

}  // namespace dsec::guest::aether

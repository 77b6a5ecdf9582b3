// Life of the spawner as aether sees it (spawner_link.hpp).
#include "guest/aether/spawner_link.hpp"

#include <linux/wait.h>

namespace dsec::guest::aether {
namespace {

constexpr uint64_t ms = 1'000'000;
constexpr uint64_t ping_after = 250 * ms;      // an ask without an answer
constexpr uint64_t stopped_limit = 1000 * ms;  // silent and stopped: root inside did it
constexpr uint64_t silent_limit =
    3000 * ms;  // silent but running: a crowded host may be all that is wrong
constexpr uint64_t first_limit = 30'000 * ms;  // nobody inside can disturb the first one
constexpr uint64_t idle_limit = 10'000 * ms;   // another one costs a millisecond
constexpr uint64_t limits_interval = 1000 * ms;
constexpr uint64_t first_backoff = 10 * ms;
constexpr uint64_t longest_backoff = 250 * ms;

}  // namespace

bool is_stopped(int pid) {
  int32_t info[32] = {};
  const long r = sys::call(__NR_waitid, P_PID, pid, info, WSTOPPED | WNOHANG | WNOWAIT, nullptr);
  return r == 0 && info[0] == SIGCHLD;
}

void spawner_link::configure(const boot_body& boot) {
  boot_ = boot;
  proc_ = unique_fd(sys::open_at(AT_FDCWD, "/proc", O_PATH | O_DIRECTORY | O_CLOEXEC));
}

void spawner_link::ensure(uint64_t now, poller& events) {
  if (state_ != state::absent || now < next_start_) return;
  backoff_ = backoff_ == 0 ? first_backoff : backoff_ * 2;
  if (backoff_ > longest_backoff) backoff_ = longest_backoff;
  next_start_ = now + backoff_;

  int pair[2] = {};
  if (sys::call(__NR_socketpair, sys::af_unix, sys::sock_seqpacket | sys::sock_cloexec, 0, pair) <
      0) {
    return;
  }
  socket_ = unique_fd(pair[0]);
  const unique_fd far(pair[1]);
  const long pid = sys::call(__NR_clone, SIGCHLD, 0);
  if (pid == 0) run_spawner(far.get(), proc_.get(), boot_);
  if (pid < 0) {
    socket_.reset();
    return;
  }
  pid_ = static_cast<int>(pid);
  retired_ = false;
  ++generation_;
  state_ = state::starting;
  asked_at_ = now;
  pinged_ = true;
  in_flight_ = 0;
  for (int i = 0; i < slab_count; ++i) {
    slab_busy_[i] = false;
    abandoned_[i].reset();
  }
  events.add(socket_.get(), {source::spawner}, EPOLLIN);
}

void spawner_link::tick(uint64_t now, poller& events) {
  if (state_ == state::absent) return ensure(now, events);
  if (state_ == state::ready && now - used_at_ >= idle_limit && idle()) {
    retired_ = true;
    missed_ = false;
    return kill();
  }
  if (state_ == state::dead || asked_at_ == 0) return;
  const uint64_t silent = now - asked_at_;
  const uint64_t limit = ever_ready_ ? silent_limit : first_limit;
  if (silent >= limit || (silent >= stopped_limit && is_stopped(pid_))) return kill();
  if (silent >= ping_after && !pinged_) {
    ask what = ask::ping;
    struct iovec part = {&what, sizeof what};
    sys::message m = {};
    m.parts = &part;
    m.part_count = 1;
    sys::send(socket_.get(), &m);  // a full socket is silence as well
    pinged_ = true;
  }
}

void spawner_link::wake(uint64_t now, poller& events) {
  missed_ = true;
  if (state_ != state::absent || !retired_) return;
  next_start_ = now;
  ensure(now, events);
}

/// Nothing is on its way, and no child shares its memory.
bool spawner_link::idle() const {
  if (in_flight_ > 0 || asked_at_ != 0) return false;
  for (const bool busy : slab_busy_) {
    if (busy) return false;
  }
  return true;
}

uint64_t spawner_link::next_tick() const {
  if (state_ == state::absent) return next_start_;
  if (state_ == state::ready && idle()) return used_at_ + idle_limit;
  if (state_ == state::dead || asked_at_ == 0) return UINT64_MAX;
  if (!pinged_) return asked_at_ + ping_after;
  const uint64_t now = sys::monotonic_ns();
  if (now < asked_at_ + stopped_limit) return asked_at_ + stopped_limit;
  return now + ping_after;  // from here on look now and then whether it is stopped
}

void spawner_link::kill() {
  sys::kill(pid_, SIGKILL);
  state_ = state::dead;
  socket_.reset();
}

int spawner_link::take_slab() {
  for (int i = 0; i < slab_count; ++i) {
    char byte = 0;
    if (abandoned_[i] && sys::read(abandoned_[i].get(), &byte, 1) == 0) {
      abandoned_[i].reset();
      slab_busy_[i] = false;
    }
    if (!slab_busy_[i]) return i;
  }
  return no_slab;
}

bool spawner_link::limits_intact() const {
  for (int i = 0; i < RLIM_NLIMITS; ++i) {
    if (i == RLIMIT_NOFILE) continue;  // it set this one itself; what is too low shows at once
    struct rlimit64 ours = {}, its = {};
    sys::call(__NR_prlimit64, 0, i, nullptr, &ours);
    if (i == RLIMIT_CORE) ours = core_limits(ours.rlim_max);
    sys::call(__NR_prlimit64, pid_, i, nullptr, &its);
    if (its.rlim_cur != ours.rlim_cur || its.rlim_max != ours.rlim_max) return false;
  }
  return true;
}

long spawner_link::send(start_request request, const char* strings, const int* fds, size_t fd_count,
                        uint64_t now, lease& slab) {
  if (state_ != state::ready) return -EAGAIN;
  if (now - limits_seen_at_ >= limits_interval) {
    limits_seen_at_ = now;
    if (!limits_intact()) {
      kill();
      return -EAGAIN;
    }
  }
  request.slab = take_slab();
  sys::rights<start_fd_max> rights;
  for (size_t i = 0; i < fd_count; ++i) rights.fds[i] = fds[i];
  rights.set_count(fd_count);
  struct iovec parts[2] = {
      {&request, sizeof request},
      {const_cast<char*>(strings), request.payload != 0 ? 0 : request.strings_length}};
  sys::message m = {};
  m.parts = parts;
  m.part_count = 2;
  m.control = &rights;
  m.control_length = rights.space();
  const long r = sys::send(socket_.get(), &m);
  if (r == -EPIPE || r == -ECONNRESET || r == -EINTR)
    return -EAGAIN;  // its death is on its way to us
  if (r < 0) return r;
  used_at_ = now;
  if (request.slab != no_slab) slab_busy_[request.slab] = true;
  slab = {request.slab, generation_};
  ++in_flight_;
  if (asked_at_ == 0) {
    asked_at_ = now;
    pinged_ = false;
  }
  return 0;
}

void spawner_link::answered(const lease& l, uint64_t now) {
  if (l.generation != generation_) return;
  if (in_flight_ > 0) --in_flight_;
  asked_at_ = in_flight_ > 0 ? now : 0;
  pinged_ = false;
  backoff_ = 0;
}

void spawner_link::give_back(const lease& l) {
  if (l.slab != no_slab && l.generation == generation_) slab_busy_[l.slab] = false;
}

void spawner_link::abandon(const lease& l, unique_fd status) {
  if (l.slab != no_slab && l.generation == generation_) {
    abandoned_[l.slab] = static_cast<unique_fd&&>(status);
  }
}

spawner_link::news spawner_link::on_readable(uint64_t now) {
  tell what = {};
  struct iovec part = {&what, sizeof what};
  sys::message m = {};
  m.parts = &part;
  m.part_count = 1;
  const long n = sys::receive(socket_.get(), &m, sys::msg_dontwait);
  if (n == -EAGAIN || n == -EINTR) return news::none;
  if (n <= 0 || what == tell::broken) {
    kill();
    return news::none;
  }
  // Alive: what is still in flight is up to the children, which are looked after one by one.
  asked_at_ = 0;
  pinged_ = false;
  if (what != tell::ready) return news::none;
  state_ = state::ready;
  ever_ready_ = true;
  limits_seen_at_ = now;
  used_at_ = now;
  return news::became_ready;
}

spawner_link::death spawner_link::on_death(uint64_t now) {
  socket_.reset();
  pid_ = 0;
  state_ = state::absent;
  asked_at_ = 0;
  writable_wanted_ = false;
  if (retired_) {
    next_start_ = missed_ ? now : UINT64_MAX;
    return death::retired;
  }
  if (next_start_ < now) next_start_ = now;
  return ever_ready_ ? death::lost : death::never_ready;
}

void spawner_link::want_writable(bool wanted, poller& events) {
  if (state_ != state::ready || wanted == writable_wanted_) return;
  writable_wanted_ = wanted;
  events.change(socket_.get(), {source::spawner}, EPOLLIN | (wanted ? EPOLLOUT : 0U));
}

}  // namespace dsec::guest::aether

// aether's side of its spawner: forks it, hands it starts, notices when it is dead, stopped or
// silent, and starts another. One that has had nothing to do for a while is ended, since it costs
// the host as much as aether itself; the next start brings another. Knows nothing of commands but
// which slab each start in flight uses.
// Owned by the proxy; one thread.
#pragma once

#include "guest/aether/fd.hpp"
#include "guest/aether/poller.hpp"
#include "guest/aether/spawner.hpp"

namespace dsec::guest::aether {

/// Whether a child of ours is stopped by a signal. Looks without consuming: waitid(2), WNOWAIT.
bool is_stopped(int pid);

class spawner_link {
 public:
  /// Which slab of which spawner a start in flight uses.
  struct lease {
    int slab = 0;
    uint32_t generation = 0;  // no spawner has this one
  };

  /// Before anything runs inside.
  void configure(const boot_body& boot);

  /// Forks a spawner if there is none and it is time; tick() does the same.
  void ensure(uint64_t now, poller& events);
  /// Kills a spawner that is stopped, silent or long idle, pings one that is slow, starts one that
  /// is missing.
  void tick(uint64_t now, poller& events);
  /// A start waits: if the spawner was ended because it was idle, there is another one soon.
  void wake(uint64_t now, poller& events);
  [[nodiscard]] uint64_t next_tick() const;

  [[nodiscard]] bool ready() const { return state_ == state::ready; }
  [[nodiscard]] bool is(int pid) const { return pid_ == pid && pid > 0; }

  /// Hands over a start: 0; -EAGAIN when it cannot take one now; else why it will never go through.
  long send(start_request request, const char* strings, const int* fds, size_t fd_count,
            uint64_t now, lease& slab);
  /// A start came through (or failed in its child): the spawner works.
  void answered(const lease& l, uint64_t now);
  void give_back(const lease& l);
  /// The start was given up, but its child may still run on the slab until `status` closes.
  void abandon(const lease& l, unique_fd status);

  enum class news { none, became_ready };
  news on_readable(uint64_t now);
  enum class death { retired, lost, never_ready };
  /// Its process was reaped.
  death on_death(uint64_t now);
  void want_writable(bool wanted, poller& events);

 private:
  enum class state : uint8_t { absent, starting, ready, dead };  // dead: killed, not reaped yet

  void kill();
  [[nodiscard]] bool idle() const;
  int take_slab();
  /// Commands inherit the spawner's limits, and root inside can change them: prlimit(2) asks for
  /// the same uid only.
  bool limits_intact() const;

  boot_body boot_ = {};
  state state_ = state::absent;
  bool ever_ready_ = false;
  bool pinged_ = false;
  bool retired_ = false;  // ended because it was idle
  bool missed_ = false;   // since then a start has come
  bool writable_wanted_ = false;
  int pid_ = 0;
  unique_fd socket_;
  unique_fd proc_;
  uint32_t generation_ = 0;
  uint32_t in_flight_ = 0;
  uint64_t next_start_ = 0;
  uint64_t backoff_ = 0;
  uint64_t limits_seen_at_ = 0;
  uint64_t asked_at_ = 0;  // first unanswered ask; 0: none
  uint64_t used_at_ = 0;   // last start, or ready
  bool slab_busy_[slab_count] = {};
  unique_fd abandoned_[slab_count];
};

}  // namespace dsec::guest::aether

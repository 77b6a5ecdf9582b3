// Bounded pools of plain threads for work that blocks: mounts, forks, kills, copies, hashing,
// files. Owned by whoever wires the node; submit() and check() are thread-safe. Jobs say how they
// went by sending a message or filling an inbox; they must not throw. A job that runs longer than
// `stuck_after` is abandoned by check(): its thread is counted and replaced, so that the jobs
// behind it go on, and ends when the job returns.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/result.hpp"

namespace dsec::base {

/// Where blocking jobs are handed in. Tests put a queue behind it that they run by hand.
class executor {
 public:
  virtual ~executor() = default;
  /// errc::capacity naming the pool when its queue is full, errc::unavailable once it shuts down.
  virtual result<void> submit(std::function<void()> job) = 0;
};

struct pool_options {
  std::string name;  // for errors, logs and /healthz
  unsigned threads = 1;
  std::size_t queue_bound = 1024;                 // jobs waiting, not counting those that run
  std::chrono::milliseconds stuck_after{30'000};  // age at which a running job counts as stuck
};

struct pool_health {
  std::string name;
  std::size_t queued = 0;
  std::size_t running = 0;              // stuck ones included
  std::size_t stuck = 0;                // running longer than stuck_after
  std::uint64_t abandoned = 0;          // ever
  std::chrono::milliseconds oldest{0};  // age of the oldest running job
};

class worker_pool final : public executor {
 public:
  explicit worker_pool(pool_options options);
  ~worker_pool() override;
  worker_pool(const worker_pool&) = delete;
  worker_pool& operator=(const worker_pool&) = delete;

  result<void> submit(std::function<void()> job) override;

  /// Drops what is queued and waits for what runs, except abandoned jobs: their threads are left
  /// behind. Idempotent. Whoever owns the pool calls it before letting go of what jobs share: the
  /// last reference to the pool itself may be one that a job holds.
  void stop();

  /// Abandons and replaces stuck threads, then reports.
  pool_health check();

 private:
  struct core;  // shared with the threads: an abandoned one may outlive the pool

  void spawn_thread();

  std::shared_ptr<core> core_;
};

}  // namespace dsec::base

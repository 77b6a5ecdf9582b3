#include "base/worker_pool.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <list>
#include <mutex>
#include <system_error>

#include "base/log.hpp"

namespace dsec::base {
namespace {

using clock = std::chrono::steady_clock;

// Replacements are bounded too: when this many threads hang, the host needs an operator, not more
// threads.
constexpr std::size_t max_abandoned_alive = 16;

struct worker {
  std::thread thread;
  bool busy = false;
  bool abandoned = false;
  clock::time_point since;  // when the present job began
};

void run_job(const std::string& pool, std::function<void()>& job) {
  try {
    job();
  } catch (const std::exception& e) {
    log::error("job_threw", {{"pool", pool}, {"what", e.what()}});
  }
}

}  // namespace

struct worker_pool::core {
  pool_options options;
  std::mutex mutex;
  std::condition_variable work;
  std::deque<std::function<void()>> queue;
  std::list<worker> workers;
  std::uint64_t abandoned = 0;
  bool stopping = false;

  void run(std::list<worker>::iterator me);
};

void worker_pool::core::run(std::list<worker>::iterator me) {
  std::unique_lock lock(mutex);
  while (true) {
    work.wait(lock, [this] { return stopping || !queue.empty(); });
    if (stopping) return;
    auto job = std::move(queue.front());
    queue.pop_front();
    me->busy = true;
    me->since = clock::now();
    lock.unlock();
    run_job(options.name, job);
    job = nullptr;  // what it captured is released outside the lock
    lock.lock();
    me->busy = false;
    if (me->abandoned) {  // replaced meanwhile, and detached: nobody joins this thread
      workers.erase(me);
      return;
    }
  }
}

worker_pool::worker_pool(pool_options options) : core_(std::make_shared<core>()) {
  core_->options = std::move(options);
  const std::scoped_lock lock(core_->mutex);
  for (unsigned i = 0; i < std::max(1U, core_->options.threads); ++i) spawn_thread();
}

worker_pool::~worker_pool() {
  stop();
}

void worker_pool::stop() {
  std::vector<std::thread> mine;
  std::deque<std::function<void()>> dropped;
  {
    const std::scoped_lock lock(core_->mutex);
    core_->stopping = true;
    dropped.swap(core_->queue);
    for (auto& w : core_->workers) {
      if (!w.abandoned && w.thread.joinable()) mine.push_back(std::move(w.thread));
    }
  }
  core_->work.notify_all();
  for (auto& t : mine) {
    // Stopped by the end of a job that held the last reference: this thread cannot wait for itself.
    if (t.get_id() == std::this_thread::get_id()) {
      t.detach();
    } else {
      t.join();
    }
  }
}

// Called with the mutex held: the new thread waits for it before it touches anything.
void worker_pool::spawn_thread() {
  core_->workers.emplace_back();
  const auto me = std::prev(core_->workers.end());
  try {
    me->thread = std::thread([c = core_, me] { c->run(me); });
  } catch (const std::system_error&) {
    core_->workers.pop_back();
    throw;
  }
}

result<void> worker_pool::submit(std::function<void()> job) {
  {
    const std::scoped_lock lock(core_->mutex);
    if (core_->stopping)
      return fail(errc::unavailable, "pool '" + core_->options.name + "' is stopping");
    if (core_->queue.size() >= core_->options.queue_bound) {
      return fail(errc::capacity, "pool '" + core_->options.name + "' already has " +
                                      std::to_string(core_->queue.size()) + " jobs waiting");
    }
    core_->queue.push_back(std::move(job));
  }
  core_->work.notify_one();
  return {};
}

pool_health worker_pool::check() {
  const std::scoped_lock lock(core_->mutex);
  const auto now = clock::now();
  pool_health health{core_->options.name, core_->queue.size(), 0, 0, 0, {}};
  std::size_t to_replace = 0;
  for (auto& w : core_->workers) {
    if (!w.busy) continue;
    ++health.running;
    const auto age = std::chrono::duration_cast<std::chrono::milliseconds>(now - w.since);
    health.oldest = std::max(health.oldest, age);
    if (age < core_->options.stuck_after) continue;
    ++health.stuck;
    if (w.abandoned || health.stuck > max_abandoned_alive) continue;
    w.abandoned = true;
    w.thread.detach();
    ++core_->abandoned;
    ++to_replace;
    log::error("job_stuck", {{"pool", core_->options.name}, {"age_ms", age.count()}});
  }
  health.abandoned = core_->abandoned;
  try {
    for (; to_replace > 0; --to_replace) spawn_thread();
  } catch (const std::system_error& e) {
    log::error("pool_thread_failed", {{"pool", core_->options.name}, {"what", e.what()}});
  }
  return health;
}

}  // namespace dsec::base

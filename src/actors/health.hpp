// What is wrong with this node right now, for /healthz and /readyz. Thread-safe: actors and pools
// report, the gateway's I/O threads read.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/worker_pool.hpp"

namespace dsec::actors {

class health_board {
 public:
  /// Of reasons that tell of a link to a coordinator; its address follows.
  static constexpr std::string_view coordinator_subject = "coordinator ";

  void watch(std::shared_ptr<base::worker_pool> pool);

  /// Unhealthy with this reason until cleared. One reason per subject.
  void report(const std::string& subject, const std::string& reason);
  /// Whether that is reported already.
  bool has(const std::string& subject, const std::string& reason);
  void clear(const std::string& subject);

  /// The workers of a coordinator and what becomes of each; no reason to be unhealthy.
  void set_edges(std::map<std::string, std::string> states);
  std::optional<std::map<std::string, std::string>> edges();

  /// Ready: recovered, and the gateway answers.
  void set_ready(bool ready) { ready_ = ready; }
  void set_draining() { draining_ = true; }
  [[nodiscard]] bool draining() const { return draining_; }

  void count_restart() { ++restarts_; }
  /// A beat of the watchdog, so much too late. From the first one on, none for longest_pause is a
  /// reason to be unhealthy: actors do not run.
  void note_beat(std::int64_t microseconds);
  void expect_beats(std::chrono::milliseconds longest_pause);
  [[nodiscard]] std::uint64_t restarts() const { return restarts_; }
  [[nodiscard]] std::uint64_t late_beats() const { return late_beats_; }
  void count_late_beat() { ++late_beats_; }

  /// Abandons stuck jobs of the pools and reports them.
  void check_pools();

  struct answer {
    bool good = false;
    std::string json;
  };
  answer healthz();
  /// What keeps sandboxes from starting here, as one sentence: a coordinator that is not there does
  /// not. Empty: nothing.
  std::string why_unhealthy();
  /// What makes it unhealthy now: reasons by subject.
  std::map<std::string, std::string> reasons();
  std::vector<base::pool_health> pools();
  answer readyz();

 private:
  void check_beats();

  std::mutex mutex_;
  std::vector<std::shared_ptr<base::worker_pool>> pools_;
  std::map<std::string, std::string> reasons_;
  std::optional<std::map<std::string, std::string>> edges_;
  std::atomic<bool> ready_{false};
  std::atomic<bool> draining_{false};
  std::atomic<std::uint64_t> restarts_{0};
  std::atomic<std::uint64_t> late_beats_{0};
  std::atomic<std::int64_t> worst_delay_us_{0};
  std::atomic<std::chrono::steady_clock::rep> last_beat_{0};
  std::atomic<std::chrono::milliseconds::rep> longest_pause_ms_{0};  // 0: none are expected
};

/// Takes outcomes of the store's writer: unhealthy from a write that failed until one that did not.
std::function<void(const base::result<void>&)> store_reporter(std::shared_ptr<health_board> board);

}  // namespace dsec::actors

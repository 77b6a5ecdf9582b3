#include "actors/health.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "base/log.hpp"

namespace dsec::actors {

using json = nlohmann::ordered_json;

void health_board::watch(std::shared_ptr<base::worker_pool> pool) {
  const std::scoped_lock lock(mutex_);
  pools_.push_back(std::move(pool));
}

void health_board::report(const std::string& subject, const std::string& reason) {
  const std::scoped_lock lock(mutex_);
  reasons_.insert_or_assign(subject, reason);
}

bool health_board::has(const std::string& subject, const std::string& reason) {
  const std::scoped_lock lock(mutex_);
  const auto known = reasons_.find(subject);
  return known != reasons_.end() && known->second == reason;
}

void health_board::clear(const std::string& subject) {
  const std::scoped_lock lock(mutex_);
  reasons_.erase(subject);
}

void health_board::set_edges(std::map<std::string, std::string> states) {
  const std::scoped_lock lock(mutex_);
  edges_ = std::move(states);
}

std::optional<std::map<std::string, std::string>> health_board::edges() {
  const std::scoped_lock lock(mutex_);
  return edges_;
}

std::string health_board::why_unhealthy() {
  check_pools();
  const std::scoped_lock lock(mutex_);
  std::string all;
  for (const auto& [subject, reason] : reasons_) {
    if (subject.starts_with(coordinator_subject)) continue;
    all.append(all.empty() ? "" : "; ").append(subject).append(": ").append(reason);
  }
  return all;
}

void health_board::note_beat(std::int64_t microseconds) {
  last_beat_ = std::chrono::steady_clock::now().time_since_epoch().count();
  auto worst = worst_delay_us_.load();
  while (microseconds > worst && !worst_delay_us_.compare_exchange_weak(worst, microseconds)) {
  }
}

void health_board::expect_beats(std::chrono::milliseconds longest_pause) {
  last_beat_ = std::chrono::steady_clock::now().time_since_epoch().count();
  longest_pause_ms_ = longest_pause.count();
}

void health_board::check_beats() {
  const std::chrono::milliseconds longest(longest_pause_ms_);
  if (longest.count() == 0) return;
  const std::chrono::steady_clock::time_point last{std::chrono::steady_clock::duration(last_beat_)};
  const auto pause = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - last);
  if (pause <= longest) return clear("actors");
  report("actors", "none has run for " + std::to_string(pause.count()) + " ms");
}

void health_board::check_pools() {
  const std::scoped_lock lock(mutex_);
  for (const auto& pool : pools_) {
    const auto health = pool->check();
    const auto subject = "pool " + health.name;
    if (health.stuck == 0) {
      reasons_.erase(subject);
      continue;
    }
    reasons_.insert_or_assign(subject, std::to_string(health.stuck) +
                                           " jobs stuck, the oldest for " +
                                           std::to_string(health.oldest.count() / 1000) + " s");
  }
}

health_board::answer health_board::healthz() {
  check_pools();
  check_beats();
  const std::scoped_lock lock(mutex_);
  json j;
  j["status"] = reasons_.empty() ? "ok" : "unhealthy";
  j["reasons"] = json::array();
  for (const auto& [subject, reason] : reasons_)
    j["reasons"].push_back({{"subject", subject}, {"reason", reason}});
  j["pools"] = json::array();
  for (const auto& pool : pools_) {
    const auto h = pool->check();
    j["pools"].push_back({{"name", h.name},
                          {"queued", h.queued},
                          {"running", h.running},
                          {"stuck", h.stuck},
                          {"abandoned", h.abandoned}});
  }
  if (edges_) j["edges"] = *edges_;
  j["actor_restarts"] = restarts_.load();
  j["late_beats"] = late_beats_.load();
  j["worst_scheduling_delay_us"] = worst_delay_us_.load();
  // Reasons carry paths and messages from outside.
  return {reasons_.empty(), j.dump(-1, ' ', false, json::error_handler_t::replace)};
}

std::map<std::string, std::string> health_board::reasons() {
  const std::scoped_lock lock(mutex_);
  return reasons_;
}

std::vector<base::pool_health> health_board::pools() {
  const std::scoped_lock lock(mutex_);
  std::vector<base::pool_health> all;
  all.reserve(pools_.size());
  for (const auto& pool : pools_) all.push_back(pool->check());
  return all;
}

std::function<void(const base::result<void>&)> store_reporter(std::shared_ptr<health_board> board) {
  return [board = std::move(board)](const base::result<void>& written) {
    if (written) {
      base::log::info("store_written_again");
      return board->clear("store");
    }
    const auto why = written.error().to_string();
    if (!board->has("store", why)) base::log::error("store_write_failed", {{"why", why}});
    board->report("store", why);
  };
}

health_board::answer health_board::readyz() {
  const bool good = ready_ && !draining_;
  json j;
  j["status"] = good ? "ready" : draining_ ? "stopping" : "starting";
  return {good, j.dump()};
}

}  // namespace dsec::actors

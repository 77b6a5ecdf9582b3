// What has happened on this node lately: a ring of typed events in memory, each with a number that
// only grows. Whoever sees something happen adds it; a request (event_desk.hpp) reads. Thread-safe;
// adding takes a lock for a moment and never waits for readers. What is older than `bound` events
// is gone, and readers are told how many.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace dsec::actors {

/// Names are stable (docs/events.md).
enum class event_kind : std::uint8_t {
  node_started,
  node_unhealthy,
  node_healthy,
  launcher_restarted,
  sandbox_created,
  sandbox_running,
  sandbox_stopped,
  sandbox_failed,
  command_started,
  command_failed,  // never ran
  command_ended,
  launcher_died,
};
std::string_view to_string(event_kind k);

struct event {
  event_kind kind = event_kind::node_started;
  std::string owner{};  // whose sandbox; empty: of the node, for everybody
  std::string sandbox_id{}, command_id{}, trace{}, detail{}, cause{};
  int exit_code = 0;
  // Filled in by the log.
  std::uint64_t seq = 0;
  std::chrono::system_clock::time_point at{};
};

struct event_filter {
  std::string principal;
  std::string trace, sandbox_id;  // empty: any
  std::uint64_t since = 0;
  std::size_t limit = 0;
};

struct event_page {
  std::vector<event> events;
  std::uint64_t last = 0;     // of the last one looked at
  std::uint64_t dropped = 0;  // after `since`, but gone
};

class event_log {
 public:
  using clock = std::function<std::chrono::system_clock::time_point()>;
  static constexpr std::size_t default_bound = 8192;

  explicit event_log(
      std::size_t bound = default_bound,
      clock wall = [] { return std::chrono::system_clock::now(); })
      : bound_(bound), wall_(std::move(wall)) {}

  void add(event e);
  [[nodiscard]] event_page find(const event_filter& wanted) const;

  using reader = std::uint64_t;
  /// Who is called, once, at the next add() after call_once(), in place of whoever was before. On
  /// the thread that adds: it must only hand over.
  reader wake_with(std::function<void()> wake);
  /// It is called no more. Nothing happens when another has taken its place.
  void leave(reader who);
  void call_once() { wanted_ = true; }

 private:
  const std::size_t bound_;
  const clock wall_;
  mutable std::mutex mutex_;
  std::deque<event> events_;
  std::uint64_t last_ = 0;
  std::function<void()> wake_;
  reader last_reader_ = 0;
  std::atomic<bool> wanted_{false};
};

}  // namespace dsec::actors

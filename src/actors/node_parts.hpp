// What a node of any role is made of besides actors: how long its end may take, what it answers
// over plain HTTP. Internal to src/actors.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "actors/health.hpp"
#include "actors/node_metrics.hpp"
#include "backends/backend.hpp"
#include "net/listener.hpp"

namespace dsec::actors {

/// Of all actors, before /healthz says so.
inline constexpr std::chrono::seconds longest_pause{5};
/// A start that has failed ends what it had begun within that.
inline constexpr std::chrono::seconds failed_start_grace{60};

/// The default of node_deps::give_up.
[[noreturn]] void end_process(const std::string& why);

/// Calls `late` unless it is destroyed before the time is over.
class grace_period {
 public:
  grace_period(std::chrono::milliseconds time, std::function<void()> late);
  ~grace_period();
  grace_period(const grace_period&) = delete;
  grace_period& operator=(const grace_period&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  bool done_ = false;
  std::thread thread_;
};

/// What plain HTTP can be asked for; not the whole worker, whose last owner is not to be a
/// connection.
struct pages {
  std::shared_ptr<health_board> health;
  std::shared_ptr<node_metrics> metrics;
  std::shared_ptr<backends::backend> backend{};  // none on a coordinator

  [[nodiscard]] std::optional<net::http_answer> get(const net::http_get& asked) const;
};

/// Closes a session that came while nobody can serve it.
net::session_handler turn_away(net::ws_session& session);

}  // namespace dsec::actors

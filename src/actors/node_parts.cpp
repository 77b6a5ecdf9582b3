#include "actors/node_parts.hpp"

#include <cstdlib>
#include <utility>

#include "base/log.hpp"

namespace dsec::actors {

void end_process(const std::string& why) {
  base::log::error("giving_up", {{"why", why}});
  std::_Exit(70);
}

grace_period::grace_period(std::chrono::milliseconds time, std::function<void()> late)
    : thread_([this, time, late = std::move(late)] {
        std::unique_lock lock(mutex_);
        if (!ended_.wait_for(lock, time, [this] { return done_; })) late();
      }) {}

grace_period::~grace_period() {
  {
    const std::scoped_lock lock(mutex_);
    done_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

namespace {

net::http_answer answer_of(const health_board::answer& a) {
  return {a.good ? 200U : 503U, "application/json", a.json};
}

}  // namespace

std::optional<net::http_answer> pages::get(const net::http_get& asked) const {
  if (asked.path == "/healthz") return answer_of(health->healthz());
  if (asked.path == "/readyz") return answer_of(health->readyz());
  if (asked.path != "/metrics") return std::nullopt;
  if (!asked.trusted) return net::needs_key();
  return net::http_answer{200, "text/plain; version=0.0.4; charset=utf-8",
                          metrics_page(*metrics, *health, backend.get())};
}

net::session_handler turn_away(net::ws_session& session) {
  session.leave("dsecd is restarting or stopping");
  return {.message = [](const proto::frame&) {},
          .malformed = [](const base::error&) {},
          .room = {},
          .closed = [] {}};
}

}  // namespace dsec::actors

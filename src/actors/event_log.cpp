#include "actors/event_log.hpp"

#include <algorithm>
#include <utility>

namespace dsec::actors {
namespace {

bool fits(const event_filter& f, const event& e) {
  return (e.owner.empty() || e.owner == f.principal) && (f.trace.empty() || e.trace == f.trace) &&
         (f.sandbox_id.empty() || e.sandbox_id == f.sandbox_id);
}

}  // namespace

std::string_view to_string(event_kind k) {
  switch (k) {
    case event_kind::node_started:
      return "node.started";
    case event_kind::node_unhealthy:
      return "node.unhealthy";
    case event_kind::node_healthy:
      return "node.healthy";
    case event_kind::launcher_restarted:
      return "launcher.restarted";
    case event_kind::sandbox_created:
      return "sandbox.created";
    case event_kind::sandbox_running:
      return "sandbox.running";
    case event_kind::sandbox_stopped:
      return "sandbox.stopped";
    case event_kind::sandbox_failed:
      return "sandbox.failed";
    case event_kind::command_started:
      return "command.started";
    case event_kind::command_failed:
      return "command.failed";
    case event_kind::command_ended:
      return "command.ended";
    case event_kind::launcher_died:
      return "launcher.died";
  }
  return "unknown";
}

void event_log::add(event e) {
  std::function<void()> wake;
  {
    const std::scoped_lock lock(mutex_);
    e.seq = ++last_;
    e.at = wall_();
    events_.push_back(std::move(e));
    if (events_.size() > bound_) events_.pop_front();
    if (wanted_.exchange(false)) wake = wake_;
  }
  if (wake) wake();
}

event_page event_log::find(const event_filter& wanted) const {
  const std::scoped_lock lock(mutex_);
  event_page page;
  const auto first_kept = last_ - events_.size() + 1;
  const auto from = std::min(wanted.since, last_) + 1;
  page.dropped = from < first_kept ? first_kept - from : 0;
  page.last = std::max(from, first_kept) - 1;
  for (auto seq = page.last + 1; seq <= last_ && page.events.size() < wanted.limit; ++seq) {
    const auto& e = events_[seq - first_kept];
    if (fits(wanted, e)) page.events.push_back(e);
    page.last = seq;
  }
  return page;
}

event_log::reader event_log::wake_with(std::function<void()> wake) {
  const std::scoped_lock lock(mutex_);
  wake_ = std::move(wake);
  return ++last_reader_;
}

void event_log::leave(reader who) {
  const std::scoped_lock lock(mutex_);
  if (who == last_reader_) wake_ = nullptr;
}

}  // namespace dsec::actors

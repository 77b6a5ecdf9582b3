#include "actors/event_desk.hpp"

#include <algorithm>
#include <cstdint>

#include "actors/event_cursor.hpp"
#include "actors/replies.hpp"
#include "actors/text_checks.hpp"

namespace dsec::actors {
namespace {

/// More do not fit in a reply, and the log is locked while they are copied.
constexpr std::uint32_t most_at_once = 256;

}  // namespace

event_desk::~event_desk() {
  // The next edge may have one already.
  if (log_) log_->leave(me_);
  for (auto& w : waiting_) w.who.abandon();
}

void event_desk::open(std::shared_ptr<event_log> log, std::string edge, std::string epoch,
                      std::function<void()> wake) {
  log_ = std::move(log);
  edge_ = std::move(edge);
  epoch_ = std::move(epoch);
  me_ = log_->wake_with(std::move(wake));
}

proto::frame event_desk::reply_to(std::uint64_t id, const event_page& page) const {
  return events_reply(id, page, edge_, epoch_);
}

base::result<event_desk::question> event_desk::read(const call& c,
                                                    proto::ListEvents::Reader request,
                                                    time_point now) const {
  question q;
  q.wanted.principal = c.from->principal;
  DSEC_TRY(q.wanted.trace, text(request.getTraceId(), "traceId"));
  DSEC_TRY(q.wanted.sandbox_id, text(request.getSandboxId(), "sandboxId"));
  DSEC_TRY(const auto after, text(request.getAfter(), "after", longest_cursor));
  DSEC_TRY(const auto cursor, event_cursor::parse(after));
  q.wanted.since = cursor.since(edge_, epoch_);
  q.wanted.limit =
      request.getLimit() == 0 ? most_at_once : std::min(request.getLimit(), most_at_once);
  q.until = std::min(c.deadline, now + std::chrono::milliseconds(request.getWaitMs()));
  return q;
}

std::optional<proto::frame> event_desk::answer_now(const question& q, std::uint64_t id,
                                                   time_point now) const {
  const auto page = log_->find(q.wanted);
  const bool something = !page.events.empty() || page.dropped > 0;
  if (!something && q.until > now && waiting_.size() < max_waiting) return std::nullopt;
  return reply_to(id, page);
}

void event_desk::wait(question q, waiter w) {
  waiting_.push_back({std::move(q), std::move(w)});
  look_again();  // it may have happened since answer_now()
}

void event_desk::look_again() {
  // Before looking: what happens in between calls again.
  if (!waiting_.empty()) log_->call_once();
  std::erase_if(waiting_, [&](waiting& w) {
    const auto page = log_->find(w.asked.wanted);
    if (page.events.empty() && page.dropped == 0) {
      w.asked.wanted.since = page.last;  // nothing before it is of interest
      return false;
    }
    w.who.answer(reply_to(w.who.id, page));
    return true;
  });
}

time_point event_desk::expire(time_point now) {
  auto next = time_point::max();
  std::erase_if(waiting_, [&](waiting& w) {
    if (w.asked.until > now) {
      next = std::min(next, w.asked.until);
      return false;
    }
    w.who.answer(reply_to(w.who.id, log_->find(w.asked.wanted)));
    return true;
  });
  return next;
}

}  // namespace dsec::actors

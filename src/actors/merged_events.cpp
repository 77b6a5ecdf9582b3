// The events of several workers as one page, with a cursor that names each of them.
#include <capnp/message.h>

#include <algorithm>
#include <utility>

#include "actors/merged_replies.hpp"
#include "actors/open_answers.hpp"
#include "actors/replies.hpp"
#include "proto/text.hpp"

namespace dsec::actors {
namespace {

/// What one worker told, and how much of it is taken.
struct source {
  std::string edge;
  proto::Events::Reader told;
  unsigned taken = 0;

  [[nodiscard]] bool is_used_up() const { return taken == told.getEvents().size(); }
  [[nodiscard]] proto::Event::Reader next() const { return told.getEvents()[taken]; }
};

/// In which order they are told: by time, but each worker's in its own order.
std::vector<proto::Event::Reader> take_oldest(std::vector<source>& from, std::size_t limit) {
  std::vector<proto::Event::Reader> page;
  std::size_t bytes = 0;
  while (limit == 0 || page.size() < limit) {
    const auto oldest =
        std::min_element(from.begin(), from.end(), [](const source& a, const source& b) {
          if (a.is_used_up() || b.is_used_up()) return b.is_used_up() && !a.is_used_up();
          return a.next().getUnixMs() < b.next().getUnixMs();
        });
    if (oldest == from.end() || oldest->is_used_up()) break;
    bytes += oldest->next().totalSize().wordCount * 8;
    if (bytes > most_event_bytes && !page.empty()) break;
    page.push_back(oldest->next());
    ++oldest->taken;
  }
  return page;
}

/// Where the worker is to go on.
void move_on(event_cursor& to, const source& s, const event_cursor& before) {
  const auto its_own = event_cursor::parse(proto::text_of(s.told.getCursor()));
  if (!its_own || its_own->places().size() != 1) return to.take(s.edge, before);
  auto at = its_own->places().begin()->second;
  if (!s.is_used_up()) {
    if (s.taken == 0) return to.take(s.edge, before);
    at.seq = s.told.getEvents()[s.taken - 1].getSeq();
  }
  to.set(s.edge, std::move(at));
}

}  // namespace

bool has_events(const proto::frame& answer) {
  const auto found = proto::view<proto::Reply>(answer).read([](proto::Reply::Reader reply) {
    const auto body = reply.getBody();
    return body.isEvents() &&
           (body.getEvents().getEvents().size() > 0 || body.getEvents().getDropped() > 0);
  });
  return found && *found;
}

proto::frame merged_events(std::uint64_t id, const std::vector<edge_answer>& answers,
                           std::vector<std::string> silent, const events_wanted& wanted) {
  const open_answers opened(answers, silent);
  std::vector<source> from;
  for (const auto& [edge, reply] : opened.all()) {
    if (reply.getBody().isEvents()) from.push_back({edge, reply.getBody().getEvents()});
  }
  const auto page = take_oldest(from, wanted.limit);
  event_cursor next;
  std::uint64_t dropped = 0;
  for (const auto& s : from) {
    move_on(next, s, wanted.after);
    // Of whom nothing is taken is asked for the same again.
    if (s.taken > 0 || s.is_used_up()) dropped += s.told.getDropped();
  }
  for (const auto& edge : silent) next.take(edge, wanted.after);
  capnp::MallocMessageBuilder message;
  auto reply = message.initRoot<proto::Reply>();
  reply.setId(id);
  auto out = reply.initBody().initEvents();
  auto list = out.initEvents(static_cast<unsigned>(page.size()));
  for (unsigned i = 0; i < page.size(); ++i) list.setWithCaveats(i, page[i]);
  out.setCursor(next.text());
  out.setDropped(dropped);
  say_silent(reply, std::move(silent));
  return proto::frame::from_builder(message);
}

}  // namespace dsec::actors

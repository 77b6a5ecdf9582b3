// What all workers have, as one list. One that is on its way back is waited for; those that do not
// answer are named. Few lists are made at once, each asks few workers at once, and what they answer
// is merged as it comes: what that takes does not grow with clients and workers. Who waits for
// something to happen has it asked for again and again: a worker that were to keep the question
// would be asked anew with every answer of another.
#include <capnp/message.h>

#include <algorithm>
#include <utility>

#include "actors/cluster.hpp"
#include "actors/event_desk.hpp"
#include "actors/text_checks.hpp"

namespace dsec::actors {
namespace {

using base::errc;
using body = proto::Request::Body;

/// The same question, to be answered at once.
proto::frame without_wait(const call& c, proto::ListEvents::Reader asked) {
  capnp::MallocMessageBuilder message;
  auto request = message.initRoot<proto::Request>();
  request.setId(c.id);
  request.setTraceId(c.trace);
  auto now = request.initBody();
  now.setListEvents(asked);
  now.getListEvents().setWaitMs(0);
  return proto::frame::from_builder(message);
}

base::result<events_wanted> read_wanted(proto::ListEvents::Reader request) {
  DSEC_TRY(const auto after, text(request.getAfter(), "after", event_desk::longest_cursor));
  events_wanted out;
  DSEC_TRY(out.after, event_cursor::parse(after));
  out.limit = request.getLimit();
  return out;
}

proto::frame merged(body::Which kind, std::uint64_t id, const std::vector<edge_answer>& answers,
                    std::vector<std::string> silent, const events_wanted& wanted) {
  switch (kind) {
    case body::LIST_IMAGES:
      return merged_images(id, answers, std::move(silent));
    case body::LIST_NODES:
      return merged_nodes(id, answers, std::move(silent));
    case body::LIST_EVENTS:
      return merged_events(id, answers, std::move(silent), wanted);
    default:
      return merged_sandboxes(id, answers, std::move(silent));
  }
}

}  // namespace

caf::result<reply> cluster_state::gather(const call& c, body::Which kind) {
  return begin_gathering({{self->make_response_promise<reply>(), c.id, c.deadline}, c, kind});
}

caf::result<reply> cluster_state::gather_events(const call& c, proto::ListEvents::Reader request) {
  auto wanted = read_wanted(request);
  if (!wanted) return reply(error_reply(c.id, wanted.error()));
  gathering g({self->make_response_promise<reply>(), c.id, c.deadline}, c, body::LIST_EVENTS);
  g.request.request = msg<proto::Request>(without_wait(c, request));
  g.events = *std::move(wanted);
  g.wait_until =
      std::min(c.deadline - shortest_try, now() + std::chrono::milliseconds(request.getWaitMs()));
  return begin_gathering(std::move(g));
}

caf::result<reply> cluster_state::begin_gathering(gathering g) {
  auto promise = g.who.promise;
  if (gatherings.size() >= max_lists) {
    g.who.refuse(
        {errc::capacity, std::to_string(max_lists) + " lists are being made; try again", 0});
    return promise;
  }
  g.until = std::min(now() + find_patience, g.request.deadline - shortest_try);
  gatherings.emplace(++last_token, std::move(g));
  go_on_listing();
  return promise;
}

void cluster_state::go_on_listing() {
  std::vector<std::uint64_t> late;
  std::size_t begun = 0;
  for (const auto& [token, g] : gatherings) {
    if (g.begun) {
      ++begun;
    } else if (g.who.deadline <= now()) {
      late.push_back(token);
    } else {
      deadlines.want(self, g.who.deadline);
    }
  }
  const base::error too_late{errc::deadline_exceeded, "other lists were made meanwhile", 0};
  for (const auto token : late) refuse_list(token, too_late);
  std::vector<std::uint64_t> next;
  for (auto& [token, g] : gatherings) {
    if (g.begun || waits(g)) continue;
    if (begun + next.size() == lists_at_once) break;
    next.push_back(token);
  }
  for (const auto token : next) {
    begin_asking(gatherings.at(token));
    ask_some(token);
  }
}

bool cluster_state::waits(const gathering& g) {
  if (now() < g.not_before) {
    deadlines.want(self, g.not_before);
    return true;
  }
  if (now() >= g.until) return false;
  const auto gone = book->gone();
  const bool may_come =
      std::any_of(gone.begin(), gone.end(), [this](const auto& edge) { return !is_lost(edge); });
  if (may_come) deadlines.want(self, g.until);
  return may_come;
}

void cluster_state::begin_asking(gathering& g) {
  g.begun = true;
  g.answers.clear();
  g.bytes = 0;
  g.silent = book->gone();
  g.lost_one = false;
  for (const auto& [name, w] : nodes) g.to_ask.push_back(name);
}

void cluster_state::ask_some(std::uint64_t token) {
  auto& g = gatherings.at(token);
  while (!g.to_ask.empty() && g.asked < asked_at_once) {
    const auto edge = std::move(g.to_ask.back());
    g.to_ask.pop_back();
    const auto it = nodes.find(edge);
    if (it == nodes.end()) {
      g.silent.push_back(edge);
      g.lost_one = true;
      continue;
    }
    ++g.asked;
    self->request(it->second.node, caf::infinite, g.request)
        .then([this, token, edge](const reply& r) { on_listed(token, edge, &r.frame()); },
              [this, token, edge](caf::error&) { on_listed(token, edge, nullptr); });
  }
  if (g.asked > 0) return;
  if (g.lost_one && now() < g.until) {
    // By then it is known to be gone, or is back.
    g.begun = false;
    g.not_before = now() + pause_between_rounds;
    return deadlines.want(self, g.not_before);
  }
  if (is_worth_waiting(g)) {
    g.begun = false;
    g.not_before = std::min(now() + pause_between_looks, g.wait_until);
    return deadlines.want(self, g.not_before);
  }
  g.ending = true;
  merge(token, g);
}

bool cluster_state::is_worth_waiting(const gathering& g) const {
  if (g.kind != body::LIST_EVENTS || now() >= g.wait_until) return false;
  if (gatherings.size() > max_watching) return false;
  return std::none_of(g.answers.begin(), g.answers.end(),
                      [](const edge_answer& a) { return has_events(a.reply); });
}

/// `edge` is empty when several answers have become one.
void cluster_state::on_listed(std::uint64_t token, const std::string& edge,
                              const proto::frame* answer) {
  const auto it = gatherings.find(token);
  if (it == gatherings.end()) return;
  auto& g = it->second;
  --g.asked;
  if (g.ending && answer != nullptr) {  // of the last merge: no worker is asked any more
    g.who.answer(*answer);
    gatherings.erase(it);
    return go_on_listing();
  }
  if (answer != nullptr) {
    g.answers.push_back({edge, *answer});
    g.bytes += answer->bytes().size();
  } else {
    g.silent.push_back(edge);
    g.lost_one = true;
  }
  // Events are few, and their cursor needs to know each worker's answer.
  const bool early = g.kind != body::LIST_EVENTS;
  if (early && g.bytes >= unmerged_bytes && g.answers.size() > 1) merge(token, g);
  const auto begun = [&] {
    const auto at = gatherings.find(token);
    return at != gatherings.end() && at->second.begun;
  };
  if (begun()) ask_some(token);
  if (!begun()) go_on_listing();  // another has its turn
}

/// It counts as asked, so that its workers do not bring more than a few merges hold.
void cluster_state::merge(std::uint64_t token, gathering& g) {
  ++g.asked;
  g.bytes = 0;
  const auto submitted = env->copy_pool->submit(
      [me = cluster_self{self}, token, id = g.who.id, kind = g.kind, wanted = g.events,
       answers = std::exchange(g.answers, {}), silent = std::exchange(g.silent, {})] {
        caf::anon_send(me, lists_merged{token, merged(kind, id, answers, silent, wanted)});
      });
  if (!submitted) refuse_list(token, submitted.error());
}

void cluster_state::refuse_list(std::uint64_t token, const base::error& why) {
  gatherings.extract(token).mapped().who.refuse(why);
  deadlines.want(self, now() + pause_between_rounds);  // the next has its turn
}

}  // namespace dsec::actors

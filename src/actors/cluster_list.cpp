// What all workers have, as one list. One that is on its way back is waited for; those that do not
// answer are named. Few lists are made at once, each asks few workers at once, and what they answer
// is merged as it comes: what that takes does not grow with clients and workers.
#include <algorithm>
#include <utility>

#include "actors/cluster.hpp"

namespace dsec::actors {

using base::errc;

caf::result<reply> cluster_state::gather(const call& c, bool images) {
  if (gatherings.size() >= max_lists) {
    return reply(error_reply(
        c.id, {errc::capacity, std::to_string(max_lists) + " lists are being made; try again", 0}));
  }
  gathering g({self->make_response_promise<reply>(), c.id, c.deadline}, c, images);
  g.until = std::min(now() + find_patience, c.deadline - shortest_try);
  auto promise = g.who.promise;
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
    if (g.begun || waits_for_workers(g)) continue;
    if (begun + next.size() == lists_at_once) break;
    next.push_back(token);
  }
  for (const auto token : next) {
    begin_asking(gatherings.at(token));
    ask_some(token);
  }
}

bool cluster_state::waits_for_workers(gathering& g) {
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
    return deadlines.want(self, now() + pause_between_rounds);
  }
  g.ending = true;
  merge(token, g);
}

/// `edge` is empty when several answers have become one.
void cluster_state::on_listed(std::uint64_t token, const std::string& edge,
                              const proto::frame* answer) {
  const auto it = gatherings.find(token);
  if (it == gatherings.end()) return;
  auto& g = it->second;
  --g.asked;
  if (g.ending) {
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
  if (g.bytes >= unmerged_bytes && g.answers.size() > 1) merge(token, g);
  if (gatherings.contains(token)) ask_some(token);
}

/// It counts as asked, so that its workers do not bring more than a few merges hold.
void cluster_state::merge(std::uint64_t token, gathering& g) {
  ++g.asked;
  g.bytes = 0;
  const auto submitted = env->copy_pool->submit(
      [me = cluster_self{self}, token, id = g.who.id, images = g.images,
       answers = std::exchange(g.answers, {}), silent = std::exchange(g.silent, {})] {
        caf::anon_send(me, lists_merged{token, images ? merged_images(id, answers, silent)
                                                      : merged_sandboxes(id, answers, silent)});
      });
  if (!submitted) refuse_list(token, submitted.error());
}

void cluster_state::refuse_list(std::uint64_t token, const base::error& why) {
  gatherings.extract(token).mapped().who.refuse(why);
  deadlines.want(self, now() + pause_between_rounds);  // the next has its turn
}

}  // namespace dsec::actors

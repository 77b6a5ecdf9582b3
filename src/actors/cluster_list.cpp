// What all workers have, as one list. One that is on its way back is waited for; those that do not
// answer are named.
#include <algorithm>
#include <utility>

#include "actors/cluster.hpp"

namespace dsec::actors {

caf::result<reply> cluster_state::gather(const call& c, bool images) {
  const auto token = ++last_token;
  gathering g({self->make_response_promise<reply>(), c.id, c.deadline}, c, images);
  g.until = std::min(now() + find_patience, c.deadline - shortest_try);
  auto promise = g.who.promise;
  gatherings.emplace(token, std::move(g));
  ask_all(token);
  return promise;
}

void cluster_state::ask_all(std::uint64_t token) {
  auto& g = gatherings.at(token);
  if (g.asked > 0) return;
  const auto gone = book->gone();
  const bool may_come =
      std::any_of(gone.begin(), gone.end(), [this](const auto& edge) { return !is_lost(edge); });
  if (may_come && now() < g.until) return deadlines.want(self, g.until);
  g.answers.clear();
  g.silent = gone;
  g.lost_one = false;
  g.asked = nodes.size() + 1;  // this loop
  for (const auto& [name, w] : nodes) {
    self->request(w.node, caf::infinite, g.request)
        .then([this, token, edge = name](const reply& r) { on_listed(token, edge, &r.frame()); },
              [this, token, edge = name](caf::error&) { on_listed(token, edge, nullptr); });
  }
  on_listed(token, {}, nullptr);
}

void cluster_state::on_listed(std::uint64_t token, const std::string& edge,
                              const proto::frame* answer) {
  const auto it = gatherings.find(token);
  if (it == gatherings.end()) return;
  auto& g = it->second;
  if (answer != nullptr) {
    g.answers.push_back({edge, *answer});
  } else if (!edge.empty()) {
    g.silent.push_back(edge);
    g.lost_one = true;
  }
  if (--g.asked > 0) return;
  // By then it is known to be gone, or is back.
  if (g.lost_one && now() < g.until) return deadlines.want(self, now() + pause_between_rounds);
  auto all = std::move(gatherings.extract(it).mapped());
  const auto id = all.who.id;
  desk.hand_out(
      cluster_self{self}, *env->copy_pool, std::move(all.who),
      [id, images = all.images, answers = std::move(all.answers), silent = std::move(all.silent)] {
        return images ? merged_images(id, answers, silent) : merged_sandboxes(id, answers, silent);
      });
}

void cluster_state::go_on_listing() {
  std::vector<std::uint64_t> tokens;
  tokens.reserve(gatherings.size());
  for (const auto& [token, g] : gatherings) tokens.push_back(token);
  for (const auto token : tokens) {
    if (gatherings.contains(token)) ask_all(token);
  }
}

}  // namespace dsec::actors

// Which worker knows an idempotency key, and stops that name one: whoever has given up waiting for
// a sandbox does not know its id.
#include <algorithm>
#include <memory>
#include <utility>

#include "actors/cluster.hpp"
#include "actors/text_checks.hpp"

namespace dsec::actors {

using base::errc;
using step = cluster_state::creation::step;

namespace {

bool says(const proto::frame& answer, errc code) {
  bool out = false;
  const auto ok = proto::view<proto::Reply>(answer).read([&](proto::Reply::Reader r) {
    out = r.getBody().isError() && r.getBody().getError().getCode() == base::to_string(code).data();
  });
  return ok && out;
}

}  // namespace

/// As many as the key leads to and a few more that are there, and whoever is gone among them.
std::vector<std::string> cluster_state::first_of(const key_of_create& key,
                                                 std::vector<std::string> names) const {
  names = rendezvous(key.first, key.second, std::move(names));
  std::size_t left = env->candidates + spare_candidates;  // to be asked
  auto end = names.begin();
  for (; end != names.end() && left > 0; ++end) left -= nodes.count(*end);
  names.erase(end, names.end());
  return names;
}

std::vector<std::string> cluster_state::not_lost() const {
  auto names = book->names();
  std::erase_if(names, [this](const auto& edge) { return is_lost(edge); });
  return names;
}

/// A key leads to workers that have the images, as order_for() has it, or to any while none has.
std::vector<std::string> cluster_state::askable(const key_of_create& key,
                                                const std::vector<std::string>& wanted) const {
  auto names = not_lost();
  auto having = names;
  std::erase_if(
      having, [&](const auto& edge) { return images.contains(edge) && !has_images(edge, wanted); });
  auto out = first_of(key, std::move(having));
  for (auto& edge : first_of(key, std::move(names))) {
    if (std::find(out.begin(), out.end(), edge) == out.end()) out.push_back(std::move(edge));
  }
  return out;
}

bool cluster_state::has_images(const std::string& edge,
                               const std::vector<std::string>& wanted) const {
  const auto it = images.find(edge);
  return it != images.end() && std::all_of(wanted.begin(), wanted.end(),
                                           [&](const auto& i) { return it->second.contains(i); });
}

std::string cluster_state::first_gone(const std::vector<std::string>& edges) const {
  for (const auto& edge : edges) {
    if (!nodes.contains(edge)) return edge;
  }
  return {};
}

void cluster_state::ask_key(const key_of_create& key, const std::vector<std::string>& edges,
                            std::function<void(const key_answers&)> done) {
  struct question {
    std::size_t open = 1;  // this loop
    key_answers answers;
    std::function<void(const key_answers&)> done;
  };
  auto q = std::make_shared<question>();
  q->done = std::move(done);
  const auto heard = [](const std::shared_ptr<question>& of) {
    if (--of->open == 0) of->done(of->answers);
  };
  for (const auto& edge : edges) {
    const auto it = nodes.find(edge);
    if (it == nodes.end()) {
      q->answers.complete = false;
      continue;
    }
    ++q->open;
    self->request(it->second.node, caf::infinite, find_key{key.first, key.second})
        .then(
            [q, edge, heard](const found_key& m) {
              q->answers.said[edge] = m.state;
              heard(q);
            },
            [q, heard](caf::error&) {
              q->answers.complete = false;
              heard(q);
            });
  }
  heard(q);
}

caf::result<reply> cluster_state::on_stop_with_key(const call& c, proto::Request::Reader request) {
  const auto name = idempotency_key(request.getIdempotencyKey());
  if (!name) return reply(error_reply(c.id, name.error()));
  const auto id = text(request.getBody().getStopSandbox().getSandboxId(), "sandboxId");
  if (!id) return reply(error_reply(c.id, id.error()));
  if (id->empty()) return withdraw(c, {c.from->principal, *name});
  const auto found = found_now({c.from, *id});
  if (found && found->who) return self->delegate(found->who, c);
  const base::error gone{errc::unavailable, "the worker of sandbox '" + *id + "' is unreachable",
                         0};
  return reply(error_reply(c.id, found ? found->why : gone, *id));
}

caf::result<reply> cluster_state::withdraw(const call& c, const key_of_create& key) {
  const auto under_way = keys_under_way.find(key);
  if (under_way != keys_under_way.end() && creations.at(under_way->second).at == step::place) {
    // All were asked, and nothing is made of it anywhere.
    auto followers = std::exchange(creations.at(under_way->second).followers, {});
    creates -= followers.size();
    const base::error cancelled{errc::cancelled, "it was withdrawn by its client", 0};
    for (auto& f : followers) f.who.refuse(cancelled);
    fail(under_way->second, cancelled);
    return reply(error_reply(
        c.id, {errc::not_found, "no sandbox was made with idempotency key '" + key.second + "'", 0},
        key.second));
  }
  auto who =
      std::make_shared<waiter>(waiter{self->make_response_promise<reply>(), c.id, c.deadline});
  const auto edges = not_lost();
  ask_key(key, edges, [this, who, c, edges](const key_answers& heard) {
    for (const auto& [edge, state] : heard.said) {
      if (state != key_state::used || !nodes.contains(edge)) continue;
      who->promise.delegate(nodes.at(edge).node, c);
      return;
    }
    withdraw_everywhere(who, c, edges);
  });
  return who->promise;
}

/// The create may still be on its way, over another connection or another coordinator: whoever it
/// may come to makes nothing of it.
void cluster_state::withdraw_everywhere(const std::shared_ptr<waiter>& who, const call& c,
                                        const std::vector<std::string>& edges) {
  const auto gone = first_gone(edges);
  if (!gone.empty() || edges.empty()) {
    return who->refuse(
        {errc::unavailable,
         edges.empty() ? "no worker is connected to this coordinator; try again"
                       : "edge '" + gone + "', which may have made it, is unreachable; try again",
         0});
  }
  struct answers {
    std::size_t open = 0;
    bool complete = true;
    std::optional<proto::frame> none, other;  // "nothing was made with it", and anything else
  };
  const auto all = std::make_shared<answers>();
  all->open = edges.size();
  const auto heard = [who, all] {
    if (--all->open > 0) return;
    if (all->other) return who->answer(*all->other);
    if (all->complete) return who->answer(*all->none);
    who->refuse({errc::unavailable, "a worker went away meanwhile; try again", 0});
  };
  for (const auto& edge : edges) {
    self->request(nodes.at(edge).node, caf::infinite, c)
        .then(
            [all, heard](const reply& r) {
              (says(r.frame(), errc::not_found) ? all->none : all->other) = r.frame();
              heard();
            },
            [all, heard](caf::error&) {
              all->complete = false;
              heard();
            });
  }
}

}  // namespace dsec::actors

// A create's way to a worker. With an idempotency key, whoever may know the key is asked first, and
// has the create if it does: nothing else remembers where a sandbox was made. Otherwise placement
// says in which order workers are tried. One that cannot admit it now answers soon, and the next is
// tried; when all have been, they are tried again, with more patience, until the deadline.
#include <algorithm>
#include <utility>

#include "actors/cluster.hpp"
#include "actors/text_checks.hpp"
#include "base/log.hpp"
#include "proto/text.hpp"

namespace dsec::actors {

using base::errc;
using step = cluster_state::creation::step;

namespace {

std::vector<std::string> images_of(proto::CreateSandbox::Reader request) {
  std::vector<std::string> out{"base " + proto::text_of(request.getImage())};
  if (request.getWorkspace().size() > 0)
    out.push_back("workspace " + proto::text_of(request.getWorkspace()));
  for (const auto toolkit : request.getToolkits())
    out.push_back("toolkit " + proto::text_of(toolkit));
  return out;
}

struct refusal {
  std::string code, message, object;
};
/// What an answer says when it is an error.
std::optional<refusal> refusal_in(const proto::frame& answer) {
  std::optional<refusal> out;
  const auto ok = proto::view<proto::Reply>(answer).read([&](proto::Reply::Reader r) {
    if (!r.getBody().isError()) return;
    const auto e = r.getBody().getError();
    out = refusal{proto::text_of(e.getCode()), proto::text_of(e.getMessage()),
                  proto::text_of(e.getObject())};
  });
  if (!ok) out = refusal{std::string(base::to_string(ok.error().code)), ok.error().message, {}};
  return out;
}

}  // namespace

caf::result<reply> cluster_state::on_create(const call& c, proto::Request::Reader request) {
  auto key = idempotency_key(request.getIdempotencyKey());
  if (!key) return reply(error_reply(c.id, key.error()));
  if (creates >= env->max_creates) {
    return reply(error_reply(c.id, {errc::capacity,
                                    "create queue: " + std::to_string(env->max_creates) +
                                        " creates are on their way to workers; try again",
                                    0}));
  }
  ++creates;
  create_waiter w{{self->make_response_promise<reply>(), c.id, c.deadline}, c};
  auto promise = w.who.promise;
  const auto under_way = keys_under_way.find({c.from->principal, *key});
  if (!key->empty() && under_way != keys_under_way.end()) {
    creations.at(under_way->second).followers.push_back(std::move(w));
    return promise;
  }
  wanted what{*std::move(key), images_of(request.getBody().getCreateSandbox()), 0};
  const auto mb = request.getBody().getCreateSandbox().getMemoryMb();
  what.limit_bytes = mb == 0 ? env->default_limit_bytes : std::uint64_t{mb} << 20U;
  begin_creation(std::move(w), std::move(what));
  return promise;
}

void cluster_state::begin_creation(create_waiter first, wanted what) {
  const auto token = ++last_token;
  creation c(std::move(first), std::move(what));
  const auto& key = c.what.key;
  c.at = key.empty() ? step::place : step::ask;
  c.patient_until = now() + place_patience;
  if (!key.empty())
    keys_under_way.insert_or_assign(key_of_create{c.first.request.from->principal, key}, token);
  creations.emplace(token, std::move(c));
  advance(token);
}

void cluster_state::look_again(std::uint64_t token, creation& c, time_point at) {
  due.erase({c.look_at, token});
  c.look_at = std::min(at, c.first.who.deadline);
  due.emplace(c.look_at, token);
  deadlines.want(self, c.look_at);
}

/// Does what can be done now; what waits for a worker or for its time is looked at again when one
/// joins and when that has come.
void cluster_state::advance(std::uint64_t token) {
  const auto it = creations.find(token);
  if (it == creations.end()) return;
  auto& c = it->second;
  due.erase({c.look_at, token});
  if (c.at == step::asking || c.at == step::placed) return;
  if (c.gone) return fail(token, {errc::cancelled, "its client has gone", 0});
  if (c.first.who.deadline <= now()) {
    if (c.refusal) return finish(token, *c.refusal, {});
    return fail(token, {errc::deadline_exceeded, "no worker was found for it in time", 0});
  }
  c.at == step::ask ? ask_for_key(token, c) : place(token, c);
}

void cluster_state::ask_for_key(std::uint64_t token, creation& c) {
  const key_of_create key{c.first.request.from->principal, c.what.key};
  const auto edges = askable(key, c.what.images);
  // It may have made the sandbox, and is waited for until it is lost; when it is back, its first
  // report has all creates looked at.
  if (const auto gone = first_gone(edges); !gone.empty())
    return look_again(token, c, *book->gone_since(gone) + env->lost_after);
  c.at = step::asking;
  ask_key(key, edges, [this, token](const key_answers& heard) { on_key_found(token, heard); });
}

void cluster_state::on_key_found(std::uint64_t token, const key_answers& heard) {
  const auto it = creations.find(token);
  if (it == creations.end()) return;
  auto& c = it->second;
  bool holder_gone = false;
  for (const auto state : {key_state::used, key_state::withdrawn}) {
    for (const auto& [edge, said] : heard.said) {
      if (said != state) continue;
      if (nodes.contains(edge)) return send_to(token, c, edge, {});
      holder_gone = true;
    }
  }
  if (holder_gone || !heard.complete) {
    // One that went after it had said so is the one; one that went before it had answered may be.
    c.at = step::ask;
    return look_again(token, c, now() + pause_between_rounds);
  }
  c.at = step::place;
  advance(token);
}

/// Workers to try, best first. With a key only those that it leads to.
std::vector<std::string> cluster_state::order_for(const creation& c) const {
  std::vector<std::string> names, having;
  for (const auto& [edge, w] : nodes) {
    if (!w.report) continue;
    names.push_back(edge);
    if (has_images(edge, c.what.images)) having.push_back(edge);
  }
  if (!c.what.key.empty()) {
    // None has them as far as is known: an image may have come since the last report.
    if (!having.empty()) names = std::move(having);
    names = rendezvous(c.first.request.from->principal, c.what.key, std::move(names));
    names.resize(std::min(names.size(), env->candidates));
  }
  std::vector<candidate> all;
  for (const auto& edge : names) {
    const auto& w = nodes.at(edge);
    const auto unseen = w.sent - std::min(w.sent, w.report->creates);
    all.push_back({edge, w.report->load, static_cast<std::uint32_t>(unseen),
                   w.report->unhealthy.empty(), has_images(edge, c.what.images)});
  }
  return places(all, c.what.limit_bytes);
}

void cluster_state::place(std::uint64_t token, creation& c) {
  // A try that cannot end in time says less than the last one.
  if (c.refusal && c.first.who.deadline - now() <= shortest_try)
    return finish(token, *c.refusal, {});
  if (c.not_before > now()) return look_again(token, c, c.not_before);
  const auto order = order_for(c);
  if (order.empty()) {
    if (c.patient_until > now()) return look_again(token, c, c.patient_until);
    return fail(token, {errc::unavailable,
                        nodes.empty() ? "no worker is connected to this coordinator; try again"
                                      : "no worker takes sandboxes now; try again",
                        0});
  }
  std::vector<std::string> left;
  for (const auto& edge : order) {
    if (!c.lacking.contains(edge)) left.push_back(edge);
  }
  if (left.empty()) {
    std::string all;
    for (const auto& [edge, why] : c.lacking)
      all.append(all.empty() ? "" : "; ").append(edge).append(": ").append(why);
    return fail(token, {errc::not_found, "no worker has all of its images: " + all, 0}, c.lacked);
  }
  const auto next = std::find_if(left.begin(), left.end(),
                                 [&](const auto& edge) { return !c.tried.contains(edge); });
  if (next == left.end()) return begin_round(token, c);
  if (left.size() == 1) return send_to(token, c, *next, {});
  send_to(token, c, *next, patience_of_try(c));
}

std::chrono::milliseconds cluster_state::patience_of_try(const creation& c) const {
  const std::chrono::milliseconds crowded(creates * 1000 / env->tries_per_second);
  return std::max(crowded, c.rounds == 0 ? first_try : further_try);
}

void cluster_state::begin_round(std::uint64_t token, creation& c) {
  ++c.rounds;
  c.tried.clear();
  c.not_before = now() + pause_between_rounds;
  look_again(token, c, c.not_before);
  base::log::debug("create_waits", {{"trace", c.first.request.trace}, {"rounds", c.rounds}});
}

void cluster_state::send_to(std::uint64_t token, creation& c, const std::string& edge,
                            std::optional<std::chrono::milliseconds> admit) {
  auto& w = nodes.at(edge);
  auto request = c.first.request;
  if (admit) request.admit_by = now() + *admit;
  c.at = step::placed;
  c.tried.insert(edge);
  ++w.sent;
  self->request(w.node, caf::infinite, std::move(request))
      .then([this, token, edge](const reply& r) { on_created(token, edge, r.frame()); },
            [this, token](caf::error&) { on_create_lost(token); });
}

void cluster_state::on_created(std::uint64_t token, const std::string& edge,
                               const proto::frame& answer) {
  const auto it = creations.find(token);
  if (it == creations.end()) return;
  auto& c = it->second;
  const auto refused = refusal_in(answer);
  const auto is = [&](errc code) { return refused && refused->code == base::to_string(code); };
  const bool time_left = c.first.who.deadline - now() > shortest_try;
  if (is(errc::deadline_exceeded) && c.refusal && !time_left) {
    return finish(token, *c.refusal, {});
  }
  if (is(errc::not_found)) {
    c.lacking[edge] = refused->message;
    c.lacked = refused->object;
  } else if (is(errc::capacity) && time_left) {
    c.refusal = answer;
  } else if (is(errc::unavailable) && time_left && !c.what.key.empty()) {
    // It was on its way there when that worker stopped, or a part of it died: it may be made yet.
    c.at = step::ask;
    return look_again(token, c, now() + pause_between_rounds);
  } else {
    return finish(token, answer, edge);
  }
  // Nothing was made.
  c.at = step::place;
  advance(token);
}

/// The link went, and with it what became of the create. Who has a key finds that out.
void cluster_state::on_create_lost(std::uint64_t token) {
  const auto it = creations.find(token);
  if (it == creations.end()) return;
  auto& c = it->second;
  if (c.what.key.empty()) {
    return fail(token, {errc::unavailable,
                        "the link to the worker that was to make it was lost; without an "
                        "idempotency key nobody knows whether it has",
                        0});
  }
  c.tried.clear();
  c.at = step::ask;
  // It asks once the link is known to be gone.
  c.gone ? advance(token) : look_again(token, c, now() + pause_between_rounds);
}

cluster_state::creation cluster_state::end_creation(std::uint64_t token) {
  auto c = std::move(creations.extract(token).mapped());
  due.erase({c.look_at, token});
  --creates;
  const auto& key = c.what.key;
  if (!key.empty()) keys_under_way.erase({c.first.request.from->principal, key});
  return c;
}

/// Who asked with the same key meanwhile is answered by the worker that has made it; when none has,
/// the next of them takes its turn.
void cluster_state::finish(std::uint64_t token, const proto::frame& answer,
                           const std::string& edge) {
  // A copy: it may be the creation's own.
  const proto::frame said = answer;  // NOLINT(performance-unnecessary-copy-initialization)
  auto c = end_creation(token);
  c.first.who.answer(said);
  const bool made = !edge.empty() && !refusal_in(said) && nodes.contains(edge);
  for (auto& f : c.followers) {
    if (made) {
      --creates;
      ++nodes.at(edge).sent;
      f.who.promise.delegate(nodes.at(edge).node, f.request);
      continue;
    }
    const auto next = keys_under_way.find({f.request.from->principal, c.what.key});
    if (next == keys_under_way.end()) {
      begin_creation(std::move(f), c.what);
    } else {
      creations.at(next->second).followers.push_back(std::move(f));
    }
  }
}

void cluster_state::fail(std::uint64_t token, const base::error& why, std::string_view object) {
  const auto& c = creations.at(token);
  finish(token, error_reply(c.first.who.id, why, object), {});
}

void cluster_state::go_on_creating() {
  std::vector<std::uint64_t> tokens;
  for (auto it = due.begin(); it != due.end() && it->first <= now(); ++it)
    tokens.push_back(it->second);
  for (const auto token : tokens) advance(token);
  if (!due.empty()) deadlines.want(self, due.begin()->first);
}

void cluster_state::look_at_all() {
  std::vector<std::uint64_t> tokens;
  tokens.reserve(due.size());
  for (const auto& [at, token] : due) tokens.push_back(token);
  for (const auto token : tokens) advance(token);
}

/// What a worker has is withdrawn there.
void cluster_state::drop_abandoned(const creates_abandoned& m) {
  std::vector<std::uint64_t> waiting;
  for (auto& [token, c] : creations) {
    creates -= std::erase_if(c.followers,
                             [&](const create_waiter& f) { return f.request.from == m.from; });
    if (c.first.request.from != m.from) continue;
    c.gone = true;
    waiting.push_back(token);
  }
  for (const auto token : waiting) advance(token);
}

}  // namespace dsec::actors

// A create's way to its sandbox actor: parse, idempotency key, images (copy pool), admission (now,
// or in the queue until its deadline), record and actor. Until it is admitted a create exists here
// only: nothing is on disk or on the host that would have to be undone.
#include <algorithm>
#include <caf/send.hpp>
#include <chrono>
#include <utility>

#include "actors/edge.hpp"
#include "actors/sandbox.hpp"
#include "actors/text_checks.hpp"
#include "base/ids.hpp"
#include "base/log.hpp"
#include "base/unix_time.hpp"

namespace dsec::actors {
namespace {

using base::errc;

base::error key_conflict(const std::string& key) {
  return {errc::conflict,
          "idempotency key '" + key + "' was used for another create; choose a new one", 0};
}

base::error key_withdrawn(const std::string& key) {
  return {errc::cancelled,
          "the create with idempotency key '" + key + "' was withdrawn before it had arrived", 0};
}

/// Until when the create waits for admission.
time_point last_moment(const call& c) {
  return std::min(c.deadline, c.admit_by.value_or(c.deadline));
}

}  // namespace

caf::result<reply> edge_state::on_create(const call& c, proto::CreateSandbox::Reader request,
                                         capnp::Text::Reader asked_key) {
  if (c.arrival) c.arrival->note();
  if (env->health->draining())
    return reply(error_reply(c.id, {errc::unavailable, "dsecd is stopping; try again", 0}));
  const auto key = idempotency_key(asked_key);
  if (!key) return reply(error_reply(c.id, key.error()));
  auto wanted = parse_create(request, env->config.sandbox, env->backend->name());
  if (!wanted) return reply(error_reply(c.id, wanted.error()));
  if (!key->empty()) {
    if (auto known = known_key(c, {c.from->principal, *key}, wanted->body_hash))
      return std::move(*known);
  }
  return begin_create(c.without_frame(), *key, std::move(*wanted));
}

/// What a create with a key that was used before gets: conflict, the sandbox, or a place among
/// those who wait.
std::optional<caf::result<reply>> edge_state::known_key(const call& c, const edge_table::key& key,
                                                        const std::string& hash) {
  const auto used = table->keys.find(key);
  auto* made = used == table->keys.end() ? nullptr : &table->sandboxes.at(used->second.sandbox_id);
  if (made != nullptr && !made->withdrawn) {
    if (used->second.body_hash != hash)
      return reply(error_reply(c.id, key_conflict(key.second), key.second));
    return self->delegate(actor_of(*made), await_running{c.without_frame(), {}});
  }
  const auto waiting = waiting_keys.find(key);
  if (waiting == waiting_keys.end()) {
    if (!early_withdrawals.contains(key, now())) return std::nullopt;
    return reply(error_reply(c.id, key_withdrawn(key.second), key.second));
  }
  auto& p = creates.at(waiting->second);
  if (p.wanted.body_hash != hash)
    return reply(error_reply(c.id, key_conflict(key.second), key.second));
  const auto until = last_moment(c);
  p.waiters.push_back({{self->make_response_promise<reply>(), c.id, until}, c.without_frame(), {}});
  deadlines.want(self, until);
  return p.waiters.back().who.promise;
}

caf::result<reply> edge_state::begin_create(const call& c, const std::string& key,
                                            create_request wanted) {
  const auto token = ++last_token;
  const bool look = !memory || now() - memory_at >= memory_stale_after;
  auto submitted =
      env->copy_pool->submit([me = edge_self{self}, env = env, token, refs = wanted.images, look] {
        images_resolved m{token, env->images->resolve(refs), {}};
        if (look) m.memory = env->memory();
        caf::anon_send(me, std::move(m));
      });
  if (!submitted) return reply(error_reply(c.id, submitted.error()));
  pending_create p{c.from->principal, key, std::move(wanted), {}, {}};
  const auto until = last_moment(c);
  p.waiters.push_back({{self->make_response_promise<reply>(), c.id, until}, c, {}});
  auto promise = p.waiters.back().who.promise;
  if (!key.empty()) waiting_keys.emplace(edge_table::key{p.principal, key}, token);
  creates.emplace(token, std::move(p));
  deadlines.want(self, until);
  return promise;
}

void edge_state::take_reading(const base::result<memory_reading>& reading) {
  if (!reading) {
    env->health->report("memory", reading.error().to_string());
    return;
  }
  env->health->clear("memory");
  memory = *reading;
  memory_at = now();
}

void edge_state::on_resolved(const images_resolved& m) {
  if (m.memory) take_reading(*m.memory);
  const auto it = creates.find(m.token);
  if (it == creates.end()) return;  // everybody who wanted it gave up
  auto& p = it->second;
  if (!m.images) return fail_create(m.token, m.images.error());
  if (!memory)
    return fail_create(m.token,
                       {errc::unavailable, "this node cannot read how much memory it has", 0});
  p.spec = complete(p.wanted, *m.images);
  const auto limit = p.spec->limits.memory_bytes;
  if (!can_ever_fit(policy(), *memory, limit)) {
    return fail_create(m.token, {errc::invalid_argument,
                                 "no node of this size can ever take it: " +
                                     describe(scarce::memory_limits, policy(), {*memory}, limit),
                                 0, "memory"});
  }
  if (!queue.push(p.principal, m.token, limit)) {
    return fail_create(
        m.token, {errc::capacity, "create queue: " + std::to_string(max_waiting) + " already wait",
                  0, "create queue"});
  }
  publish_load();
  pump();
}

void edge_state::publish_load() {
  env->metrics->creates_waiting.set(static_cast<std::int64_t>(queue.size()));
  env->metrics->admitted_memory_bytes.set(static_cast<std::int64_t>(limits_bytes));
}

admission_policy edge_state::policy() const {
  const auto& n = env->config.node;
  return {n.max_sandboxes, std::uint64_t{n.memory_reserve_mb} << 20U, n.memory_overcommit};
}

counted_load edge_state::on_get_load(const get_load& m) {
  return {{memory ? load() : node_load{{}, live, limits_bytes, 0}, policy(),
           static_cast<std::uint32_t>(creates.size()), env->health->draining()},
          *m.creates};
}

node_load edge_state::load() {
  while (!settling.empty()) {
    const auto it = table->sandboxes.find(settling.front());
    if (it != table->sandboxes.end()) {
      if (now() - it->second.admitted < settling_time) break;
      settling_bytes -= std::exchange(it->second.settling_bytes, 0);
    }
    settling.pop_front();
  }
  return {*memory, live, limits_bytes, settling_bytes};
}

/// Admits whatever fits now. What does not is tried again when a sandbox ends, and after
/// memory_retry.
void edge_state::pump() {
  if (queue.empty() || !memory) return;
  const auto fits = [&](std::uint64_t limit) {
    return find_scarce(policy(), load(), limit) == scarce::nothing;
  };
  while (const auto token = queue.pop(fits)) admit(*token);
  publish_load();
  if (!queue.empty()) deadlines.want(self, now() + memory_retry);
}

void edge_state::read_memory() {
  if (reading_memory) return;
  auto submitted = env->copy_pool->submit(
      [me = edge_self{self}, env = env] { caf::anon_send(me, memory_read{env->memory()}); });
  reading_memory = submitted.has_value();
}

void edge_state::on_memory(const memory_read& m) {
  reading_memory = false;
  take_reading(m.memory);
  pump();
}

void edge_state::admit(std::uint64_t token) {
  auto p = std::move(creates.extract(token).mapped());
  sandbox_record record;
  record.id = base::new_sandbox_id(env->config.node.name);
  record.owner = p.principal;
  record.spec = std::move(*p.spec);
  record.key = p.key;
  record.body_hash = p.wanted.body_hash;
  // The last who asked has the lease that counts, see sandbox_state::follow_lease.
  if (!p.wanted.detached) record.lease = p.waiters.back().request.from->lease;
  record.created_unix_ms = base::unix_ms(env->wall());
  const auto& asked = p.waiters.front().request;
  record.spec.trace = asked.trace;
  const auto id = record.id;
  if (!p.key.empty()) {
    waiting_keys.erase({p.principal, p.key});
    table->keys.insert_or_assign(edge_table::key{p.principal, p.key},
                                 used_key{id, p.wanted.body_hash});
  }
  edge_entry e;
  e.book = std::make_shared<ledger>(std::move(record));
  base::log::info("sandbox_admitted", {{"sandbox", id},
                                       {"trace", asked.trace},
                                       {"principal", asked.from->principal},
                                       {"peer", asked.from->peer}});
  env->events->add({.kind = event_kind::sandbox_created,
                    .owner = asked.from->principal,
                    .sandbox_id = id,
                    .trace = asked.trace,
                    .detail = e.book->record.spec.image});
  e.admitted = now();
  e.settling_bytes = first_need(e.book->record.spec.limits.memory_bytes);
  settling_bytes += e.settling_bytes;
  settling.push_back(id);
  limits_bytes += e.book->record.spec.limits.memory_bytes;
  ++live;
  env->metrics->count_phase(e.book->record.phase, 1);
  e.book->status.touch(now());
  caf::anon_send(watcher, watch_sandbox{id, e.book, now()});
  auto& actor = actor_of(table->sandboxes.emplace(id, std::move(e)).first->second);
  for (auto& w : p.waiters) w.who.promise.delegate(actor, await_running{w.request, w.abandoned});
  if (std::exchange(refill_armed, true)) return;
  self->delayed_send(self, refill_delay, refill_due{});
}

void edge_state::fail_create(std::uint64_t token, const base::error& why) {
  auto p = std::move(creates.extract(token).mapped());
  if (!p.key.empty()) waiting_keys.erase({p.principal, p.key});
  queue.remove(token);
  publish_load();
  for (auto& w : p.waiters) w.who.refuse(why);
}

base::error edge_state::why_late(const pending_create& p) {
  if (!p.spec || !memory) return {errc::deadline_exceeded, "images were not looked up in time", 0};
  const auto limit = p.spec->limits.memory_bytes;
  const auto what = find_scarce(policy(), load(), limit);
  if (what == scarce::nothing)
    return {errc::capacity, "others were before it in the create queue", 0, "create queue"};
  return {errc::capacity,
          "not admitted in time for want of " + describe(what, policy(), load(), limit), 0,
          std::string(name_of(what))};
}

void edge_state::expire_creates() {
  const auto at = now();
  auto earliest = time_point::max();
  std::vector<std::uint64_t> empty;
  for (auto& [token, p] : creates) {
    for (auto& w : p.waiters) {
      if (w.who.deadline <= at) {
        w.who.refuse(why_late(p));
      } else {
        earliest = std::min(earliest, w.who.deadline);
      }
    }
    std::erase_if(p.waiters, [&](const create_waiter& w) { return w.who.deadline <= at; });
    const auto until = p.abandoned_until();
    if (p.waiters.empty() || (until && *until <= at)) {
      empty.push_back(token);
    } else if (until) {
      earliest = std::min(earliest, *until);
    }
  }
  for (const auto token : empty) fail_create(token, {errc::cancelled, "its client has gone", 0});
  if (earliest != time_point::max()) deadlines.want(self, earliest);
}

void edge_state::on_alarm(const alarm_rang& rang) {
  if (!deadlines.is_current(rang)) return;
  expire_creates();
  if (const auto next = events.expire(now()); next != time_point::max()) deadlines.want(self, next);
  if (queue.empty()) return;
  deadlines.want(self, now() + memory_retry);
  read_memory();
}

}  // namespace dsec::actors

// The edge as supervisor: one actor per sandbox, started again over the same ledger when it dies,
// one for one and within a budget; what is beyond it is ended without an actor. The reaper
// likewise; when it keeps dying so does the edge, and the root decides.
#include <algorithm>
#include <caf/send.hpp>
#include <chrono>
#include <utility>

#include "actors/edge.hpp"
#include "actors/reaper.hpp"
#include "actors/sandbox.hpp"
#include "base/log.hpp"

namespace dsec::actors {

using base::errc;

namespace {

/// What jobs reported to a sandbox whose actors kept crashing: nobody else acts on it any more.
/// False: its last stop left something.
bool take_last_events(ledger& book) {
  for (auto& event : book.events.take()) book.todo.push_back(std::move(event));
  bool complete = true;
  for (const auto& event : std::exchange(book.todo, {})) {
    if (const auto* started = std::get_if<start_done>(&event)) {
      book.start_in_flight = false;
      if (started->instance) book.instance = started->instance;
    } else if (const auto* stopped = std::get_if<stop_done>(&event)) {
      book.stop_in_flight = false;
      complete = !stopped->why;
      book.released = complete;
    }
  }
  return complete;
}

void stop_job(const ledger_ptr& book, const std::shared_ptr<backends::instance>& instance) {
  auto ok = instance->stop();
  if (!ok) {
    base::log::error(
        "sandbox_stop_incomplete",
        {{"sandbox", book->record.id}, {"trace", book->trace}, {"why", ok.error().to_string()}});
  }
  book->events.add(stop_done{ok ? std::nullopt : std::optional(std::move(ok).error())});
}

}  // namespace

/// A sandbox that was there before this edge.
void edge_state::adopt(const std::string& id, edge_entry& e) {
  e.settling_bytes = 0;
  if (std::exchange(e.taken_over, false)) {
    // Its time went on while no dsecd was there, but nobody could use it.
    const auto created = std::chrono::system_clock::time_point(
        std::chrono::milliseconds(e.book->status.record()->created_unix_ms));
    e.admitted = now() - std::max(env->wall() - created, std::chrono::system_clock::duration(0));
    e.book->status.touch(now());
    env->metrics->count_phase(e.book->record.phase, 1);  // it has no actor yet
  }
  if (e.live) {
    ++live;
    limits_bytes += e.book->status.record()->spec.limits.memory_bytes;
    publish_load();
  }
  if (!e.actor) {
    if (!e.live) return;
    // The edge that gave it up may have died before it was released.
    if (e.given_up) {
      e.book->stop_in_flight = false;
      return end_given_up(id, e.book);
    }
    actor_of(e);
    return;
  }
  sandbox_of.emplace(e.actor.id(), id);
  self->monitor(e.actor);  // one that died meanwhile is reported at once
  caf::anon_send(e.actor, new_parent{edge_self{self}});
}

sandbox_actor& edge_state::actor_of(edge_entry& e) {
  if (!e.actor) {
    e.actor = self->spawn<caf::monitored>(sandbox, env, e.book, sandbox_parent{edge_self{self}});
    sandbox_of.emplace(e.actor.id(), e.book->status.record()->id);
  }
  return e.actor;
}

void edge_state::start_reaper() {
  watcher = self->spawn<caf::monitored>(reaper, reaper_parent{edge_self{self}}, env->leases);
  const auto wall = env->wall();
  for (const auto& [id, e] : table->sandboxes) {
    if (e.live) {
      caf::anon_send(watcher, watch_sandbox{id, e.book, e.admitted});
      continue;
    }
    const auto ended = std::chrono::system_clock::time_point(
        std::chrono::milliseconds(e.book->status.record()->ended_unix_ms));
    const auto kept_until = ended + std::chrono::seconds(env->live->retention_seconds.load());
    caf::anon_send(
        watcher,
        retain_sandbox{id, std::max(std::chrono::ceil<std::chrono::milliseconds>(kept_until - wall),
                                    std::chrono::milliseconds(0))});
  }
}

void edge_state::on_down(const caf::down_msg& m) {
  if (watcher && m.source == watcher.address()) return restart_reaper();
  const auto it = sandbox_of.find(m.source.id());
  if (it == sandbox_of.end()) return;
  const auto id = it->second;
  sandbox_of.erase(it);
  const auto found = table->sandboxes.find(id);
  if (found == table->sandboxes.end()) return;
  base::log::error("sandbox_actor_died", {{"sandbox", id}, {"trace", found->second.book->trace}});
  restart_or_give_up(id, found->second);
}

/// One that dies over what it is told is not helped by another one: the root decides then.
void edge_state::restart_reaper() {
  env->health->count_restart();
  watcher = nullptr;
  if (reaper_restarts.spend(now())) return start_reaper();
  base::log::error("reaper_died_too_often");
  self->quit(caf::exit_reason::unhandled_exception);
}

void edge_state::restart_or_give_up(const std::string& id, edge_entry& e) {
  env->health->count_restart();
  e.actor = nullptr;
  if (!e.restarts.spend(now())) return give_up(id, e);
  const auto& next = actor_of(e);
  // The dead one may not have heard of it.
  if (e.withdrawn)
    caf::anon_send(next, end_sandbox{base::cause::killed, withdrawn_by_client, true});
}

/// The last resort: no actor is left to do it well, so its instance is ended from here. The dead
/// actor touches the ledger no more.
void edge_state::give_up(const std::string& id, edge_entry& e) {
  e.given_up = true;
  auto& record = e.book->record;
  if (!base::is_terminal(record.phase)) {
    env->metrics->count_phase(record.phase, -1);
    env->metrics->count_phase(base::phase::failed, 1);
    record.phase = base::phase::failed;
    if (record.cause == base::cause::none) record.cause = base::cause::backend;
    record.detail = "its actor crashed repeatedly";
    note_end(record, env->wall());
  }
  // A create with its key makes a new one, after a restart too.
  record.key.clear();
  free_keys_of(id);
  auto snapshot = std::make_shared<const sandbox_record>(record);
  env->writer->save(snapshot);
  e.book->status.publish(std::move(snapshot));
  e.book->commands.lose_all({errc::sandbox_failed, "sandbox '" + id + "' has failed", 0});
  e.book->status.set_busy(0, 0);
  env->events->add({.kind = event_kind::sandbox_failed,
                    .owner = e.book->record.owner,
                    .sandbox_id = id,
                    .trace = e.book->trace,
                    .detail = e.book->record.detail,
                    .cause = std::string(to_string(e.book->record.cause))});
  base::log::error("sandbox_given_up", {{"sandbox", id}, {"trace", e.book->trace}});
  report_given_up();
  e.book->start_cancelled = true;
  end_given_up(id, e.book);
}

/// A defect of ours, and not to be overlooked for as long as its record is kept.
void edge_state::report_given_up() {
  const auto n = std::count_if(table->sandboxes.begin(), table->sandboxes.end(),
                               [](const auto& s) { return s.second.given_up; });
  if (n == 0) return env->health->clear("sandboxes");
  env->health->report("sandboxes",
                      std::to_string(n) + " given up because their actors crashed repeatedly");
}

/// Goes on with what its actors left: whatever is under way ends with an event, and that wakes us.
void edge_state::end_given_up(const std::string& id, const ledger_ptr& book) {
  const bool complete = take_last_events(*book);
  book->events.wake_with([me = edge_self{self}, id] { caf::anon_send(me, give_up_again{id}); });
  if (book->start_in_flight || book->stop_in_flight) return;
  if (!complete && !env->health->draining()) {
    self->delayed_send(self, give_up_retry, give_up_again{id});
    return;
  }
  if (!complete || book->released || !book->instance)
    return caf::anon_send(self, sandbox_released{id, false});
  book->stop_in_flight = true;
  const bool keep = is_to_be_kept(book->record) && !book->kept;
  auto job = [env = env, book, instance = book->instance,
              failed = keep ? book->status.record() : nullptr] {
    if (failed) env->keep_failed(*failed, *instance);
    stop_job(book, instance);
  };
  if (env->kill_pool->submit(std::move(job))) {
    book->kept = book->kept || keep;
    return;
  }
  book->stop_in_flight = false;
  self->delayed_send(self, give_up_retry, give_up_again{id});
}

void edge_state::on_give_up_again(const give_up_again& m) {
  const auto it = table->sandboxes.find(m.id);
  if (it != table->sandboxes.end() && it->second.given_up) end_given_up(m.id, it->second.book);
}

}  // namespace dsec::actors

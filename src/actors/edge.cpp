#include "actors/edge.hpp"

#include <caf/send.hpp>
#include <chrono>
#include <utility>

#include "actors/orphans.hpp"
#include "actors/reaper.hpp"
#include "actors/recovery.hpp"
#include "actors/runtime.hpp"
#include "actors/sandbox.hpp"
#include "base/log.hpp"
#include "base/paths.hpp"

namespace dsec::actors {

using base::errc;

edge_state::~edge_state() {
  for (auto& [token, p] : creates) {
    for (auto& w : p.waiters) w.who.abandon();
  }
  for (auto& s : stoppers) s.deliver(caf::make_error(caf::sec::request_receiver_down));
  // The next edge starts a reaper of its own.
  if (watcher) caf::anon_send_exit(watcher, caf::exit_reason::user_shutdown);
}

void edge_state::begin(worker_ptr worker, std::shared_ptr<edge_table> known) {
  env = std::move(worker);
  table = std::move(known);
  for (auto& [id, e] : table->sandboxes) {
    // A withdrawal whose answer was lost is sent again: it is not one of a create to come.
    const auto r = e.book->status.record();
    if (!r->key.empty() && r->body_hash.empty()) done_withdrawals.add({r->owner, r->key}, now());
    adopt(id, e);
  }
  publish_load();
  start_reaper();
  end_leftovers();
  events.open(env->events, env->config.node.name, env->epoch,
              [me = edge_self{self}] { caf::anon_send(me, events_added{}); });
}

caf::result<reply> edge_state::on_call(const call& c) {
  std::optional<caf::result<reply>> out;
  const auto readable = c.request.read([&](proto::Request::Reader request) {
    const auto body = request.getBody();
    switch (body.which()) {
      case proto::Request::Body::PING:
        out = reply(pong_reply(c.id));
        break;
      case proto::Request::Body::CREATE_SANDBOX:
        out = on_create(c, body.getCreateSandbox(), request.getIdempotencyKey());
        break;
      case proto::Request::Body::STOP_SANDBOX:
        out = on_stop_with_key(c, body.getStopSandbox(), request.getIdempotencyKey());
        break;
      case proto::Request::Body::LIST_SANDBOXES:
        out = list_sandboxes(c);
        break;
      case proto::Request::Body::LIST_IMAGES:
        out = list_images(c);
        break;
      case proto::Request::Body::LIST_EVENTS:
        out = on_list_events(c, body.getListEvents());
        break;
      case proto::Request::Body::LIST_NODES:
        out = list_nodes(c);
        break;
      default:
        out =
            reply(error_reply(c.id, {errc::unsupported, "an edge does not know this request", 0}));
    }
  });
  if (!out) return reply(error_reply(c.id, readable ? base::error{} : readable.error()));
  return std::move(*out);
}

found_sandbox edge_state::on_find(const find_sandbox& m) {
  const auto it = table->sandboxes.find(m.id);
  // Somebody else's sandbox and none at all look the same.
  if (it == table->sandboxes.end() ||
      it->second.book->status.record()->owner != m.from->principal) {
    return {{}, {errc::not_found, "there is no sandbox '" + m.id + "'", 0}};
  }
  if (it->second.given_up) {
    return {{},
            {errc::sandbox_failed,
             "sandbox '" + m.id + "' has failed (backend): its actor crashed repeatedly", 0}};
  }
  return {actor_of(it->second), {}};
}

void edge_state::on_released(const sandbox_released& m) {
  const auto it = table->sandboxes.find(m.id);
  if (it == table->sandboxes.end() || !it->second.live) return;
  auto& e = it->second;
  const auto record = e.book->status.record();
  e.live = false;
  --live;
  limits_bytes -= record->spec.limits.memory_bytes;
  publish_load();
  settling_bytes -= std::exchange(e.settling_bytes, 0);
  if (e.book->sealed) env->health->clear(sealed_subject(m.id));
  if (!m.keeps_key && !e.withdrawn) free_keys_of(m.id);
  table->ended.push_back(m.id);
  caf::anon_send(watcher,
                 retain_sandbox{m.id, std::chrono::seconds(env->live->retention_seconds.load())});
  keep_ended_bounded();
  answer_stoppers();
  pump();
}

void edge_state::on_lease_bound(const lease_bound& m) {
  const auto it = table->sandboxes.find(m.id);
  if (it != table->sandboxes.end() && it->second.live)
    caf::anon_send(watcher, watch_lease{m.id, it->second.book});
}

void edge_state::keep_ended_bounded() {
  while (table->ended.size() > max_ended) {
    const auto oldest = std::move(table->ended.front());
    table->ended.pop_front();
    forget(oldest);
  }
}

void edge_state::on_due(const sandbox_due& m) {
  const auto it = table->sandboxes.find(m.id);
  if (it == table->sandboxes.end()) return;
  auto& e = it->second;
  switch (m.due) {
    case sandbox_due::what::retention:
      if (!e.live) forget(m.id);
      break;
    case sandbox_due::what::absolute_ttl: {
      const auto ttl = e.book->status.record()->spec.absolute_ttl_seconds;
      if (e.actor) {
        caf::anon_send(e.actor, end_sandbox{base::cause::ttl,
                                            "its time of " + std::to_string(ttl) + " s is over"});
      }
      break;
    }
    case sandbox_due::what::idle_ttl:
      if (e.actor) caf::anon_send(e.actor, end_if_idle{});
      break;
    case sandbox_due::what::lease:
      if (e.actor) caf::anon_send(e.actor, end_if_unleased{});
      break;
  }
}

void edge_state::forget(const std::string& id) {
  const auto it = table->sandboxes.find(id);
  if (it == table->sandboxes.end() || it->second.live) return;
  auto e = std::move(it->second);
  table->sandboxes.erase(it);
  const auto record = e.book->status.record();
  env->metrics->count_phase(record->phase, -1);
  const auto key = table->keys.find({record->owner, record->key});
  if (key != table->keys.end() && key->second.sandbox_id == id) table->keys.erase(key);
  if (e.withdrawn) free_keys_of(id);  // its record does not name it any more
  if (e.actor) {
    sandbox_of.erase(e.actor.id());
    caf::anon_send(e.actor, forget_sandbox{});
  } else {
    // The end of an instance may wait for threads.
    static_cast<void>(env->background_pool->submit([book = std::move(e.book)] {}));
  }
  if (e.given_up) report_given_up();
  env->writer->erase(id);
  remove_files(id);
}

void edge_state::free_keys_of(const std::string& id) {
  std::erase_if(table->keys, [&](const auto& k) { return k.second.sandbox_id == id; });
}

/// What a sandbox leaves on disk until its retention ends.
void edge_state::remove_files(const std::string& id) {
  auto job = [paths = base::paths(env->config.state), id] { remove_sandbox_files(paths, id); };
  if (auto ok = env->background_pool->submit(std::move(job)); !ok) {
    base::log::warn("sandbox_files_kept", {{"sandbox", id}, {"why", ok.error().message}});
  }
}

caf::result<everything_stopped> edge_state::on_stop_everything(const stop_everything& m) {
  env->health->set_draining();
  while (!creates.empty()) {
    fail_create(creates.begin()->first, {errc::unavailable, "dsecd is stopping; try again", 0});
  }
  if (m.leave) return everything_stopped{};
  for (auto& [id, e] : table->sandboxes) {
    if (e.live && e.actor)
      caf::anon_send(e.actor, end_sandbox{base::cause::killed, "dsecd is stopping"});
  }
  stoppers.push_back(self->make_response_promise<everything_stopped>());
  auto promise = stoppers.back();
  answer_stoppers();
  return promise;
}

void edge_state::answer_stoppers() {
  if (live != 0) return;
  for (auto& s : std::exchange(stoppers, {})) s.deliver(everything_stopped{});
}

void edge_state::on_refill() {
  refill_armed = false;
  // A busy pool is no reason to worry: starts make what they need themselves.
  static_cast<void>(env->background_pool->submit([env = env] { env->backend->refill(); }));
}

/// Before anything was started that has been tried once. Without it nothing can be kept ready.
void edge_state::end_leftovers() {
  const auto submitted = env->background_pool->submit([env = env, me = edge_self{self}] {
    if (!end_unknown(*env)) caf::anon_send(me, leftovers_stay{});
    env->backend->refill();
  });
  if (!submitted) self->delayed_send(self, leftovers_retry, leftovers_due{});
}

void edge_state::tell_children_to_exit() {
  for (auto& [id, e] : table->sandboxes) {
    if (e.actor) caf::anon_send_exit(e.actor, caf::exit_reason::user_shutdown);
  }
}

edge_self::behavior_type edge(edge_self::stateful_pointer<edge_state> self, worker_ptr env,
                              std::shared_ptr<edge_table> table) {
  install_handlers(self, {.down = [self](const caf::down_msg& m) { self->state.on_down(m); },
                          .exit = [self] { self->state.tell_children_to_exit(); }});
  self->state.begin(std::move(env), std::move(table));
  return {
      [self](const call& c) { return self->state.on_call(c); },
      [self](const find_sandbox& m) { return self->state.on_find(m); },
      [self](const find_key& m) { return self->state.on_find_key(m); },
      [self](const get_load& m) { return self->state.on_get_load(m); },
      [self](const stop_everything& m) { return self->state.on_stop_everything(m); },
      [self](const creates_abandoned& m) { self->state.on_abandoned(m); },
      [self](const sandbox_released& m) { self->state.on_released(m); },
      [self](const lease_bound& m) { self->state.on_lease_bound(m); },
      [self](const sandbox_due& m) { self->state.on_due(m); },
      [self](const images_resolved& m) { self->state.on_resolved(m); },
      [self](const memory_read& m) { self->state.on_memory(m); },
      [self](events_added) { self->state.events.look_again(); },
      [self](refill_due) { self->state.on_refill(); },
      [self](leftovers_stay) {
        self->delayed_send(self, edge_state::leftovers_retry, leftovers_due{});
      },
      [self](leftovers_due) { self->state.end_leftovers(); },
      [self](const give_up_again& m) { self->state.on_give_up_again(m); },
      [self](const answer_made& m) { self->state.desk.deliver(m); },
      [self](const alarm_rang& m) { self->state.on_alarm(m); },
  };
}

}  // namespace dsec::actors

#include "actors/reaper.hpp"

#include <caf/send.hpp>
#include <chrono>
#include <utility>

#include "actors/runtime.hpp"

namespace dsec::actors {

using what = sandbox_due::what;

void reaper_state::add(time_point at, entry e) {
  const bool limit = e.due != what::retention;
  const auto where = entries.emplace(at, std::move(e));
  if (limit) limits.emplace(where->second.id, where);
  next.want(self, at);
}

void reaper_state::watch(const watch_sandbox& m) {
  const auto record = m.book->status.record();
  if (const auto ttl = record->spec.absolute_ttl_seconds; ttl != 0) {
    add(m.created + std::chrono::seconds(ttl), {what::absolute_ttl, m.id, m.book});
  }
  if (const auto ttl = record->spec.idle_ttl_seconds; ttl != 0) {
    add(m.book->status.last_use() + std::chrono::seconds(ttl), {what::idle_ttl, m.id, m.book});
  }
  if (record->lease) look_lease({what::lease, m.id, m.book}, m.book, self->clock().now());
}

/// The one it had before does not matter any more.
void reaper_state::watch_lease_of(const watch_lease& m) {
  const auto [first, last] = limits.equal_range(m.id);
  for (auto it = first; it != last; ++it) {
    if (it->second->second.due != what::lease) continue;
    entries.erase(it->second);
    limits.erase(it);
    break;
  }
  look({what::lease, m.id, m.book}, self->clock().now());
}

void reaper_state::retain(const retain_sandbox& m) {
  drop_limits(m.id);
  add(self->clock().now() + m.retention, {what::retention, m.id, {}});
}

/// It has ended; an entry that waited for its day would keep the ledger's memory until then.
void reaper_state::drop_limits(const std::string& id) {
  const auto [first, last] = limits.equal_range(id);
  for (auto it = first; it != last; ++it) entries.erase(it->second);
  limits.erase(first, last);
}

void reaper_state::take_out(std::multimap<time_point, entry>::iterator at) {
  const auto [first, last] = limits.equal_range(at->second.id);
  for (auto it = first; it != last; ++it) {
    if (it->second != at) continue;
    limits.erase(it);
    break;
  }
  entries.erase(at);
}

void reaper_state::look(const entry& e, time_point now) {
  if (e.due == what::retention) return caf::anon_send(parent, sandbox_due{e.id, e.due});
  const auto book = e.book.lock();
  if (!book || base::is_terminal(book->status.record()->phase)) return;
  if (e.due == what::idle_ttl) return look_idle(e, book, now);
  if (e.due == what::lease) return look_lease(e, book, now);
  caf::anon_send(parent, sandbox_due{e.id, e.due});
  add(now + ask_again, e);
}

/// Looked at once per idle period: then either it is due, or the moment when it may be is known.
void reaper_state::look_idle(const entry& e, const ledger_ptr& book, time_point now) {
  const auto idle = std::chrono::seconds(book->status.record()->spec.idle_ttl_seconds);
  const auto due = (book->status.busy() ? now : book->status.last_use()) + idle;
  if (due > now) return add(due, e);
  caf::anon_send(parent, sandbox_due{e.id, e.due});
  // If it is used before that message arrives it lives on, and has to be watched on.
  add(now + idle, e);
}

/// A lease that is held now cannot end before its whole time has passed once more.
void reaper_state::look_lease(const entry& e, const ledger_ptr& book, time_point now) {
  const auto record = book->status.record();
  if (!record->lease) return;  // detached; told again when it is bound again
  const auto ends = leases->ends(record->owner, record->lease);
  if (!ends) return add(now + std::chrono::milliseconds(record->lease.ms), e);
  if (*ends > now) return add(*ends, e);
  caf::anon_send(parent, sandbox_due{e.id, e.due});
  add(now + ask_again, e);
}

void reaper_state::on_alarm(const alarm_rang& rang) {
  if (!next.is_current(rang)) return;
  const auto now = self->clock().now();
  while (!entries.empty() && entries.begin()->first <= now) {
    const auto e = entries.begin()->second;
    take_out(entries.begin());
    look(e, now);
  }
  if (!entries.empty()) next.want(self, entries.begin()->first);
}

reaper_self::behavior_type reaper(reaper_self::stateful_pointer<reaper_state> self,
                                  reaper_parent parent, std::shared_ptr<lease_table> leases) {
  install_handlers(self);
  self->state.parent = std::move(parent);
  self->state.leases = std::move(leases);
  return {
      [self](const watch_sandbox& m) { self->state.watch(m); },
      [self](const watch_lease& m) { self->state.watch_lease_of(m); },
      [self](const retain_sandbox& m) { self->state.retain(m); },
      [self](const alarm_rang& m) { self->state.on_alarm(m); },
  };
}

}  // namespace dsec::actors

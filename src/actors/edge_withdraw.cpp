// Creates that nobody wants any more. Told by the client, by the key: who has given up waiting for
// a sandbox does not know its id. Or seen from here: the connections are gone over which it was
// asked for, and abandon_grace is over.
#include <algorithm>
#include <utility>

#include "actors/edge.hpp"
#include "actors/sandbox.hpp"
#include "actors/text_checks.hpp"

namespace dsec::actors {

using base::errc;

/// A stop that names the key of the create: it is free from here on, so that a create with it makes
/// a new sandbox. Until then it finds the old one, for a stop whose answer was lost and that is
/// sent again. Without an id it is whatever was made with the key, or would be.
caf::result<reply> edge_state::on_stop_with_key(const call& c, proto::SandboxRef::Reader request,
                                                capnp::Text::Reader asked_key) {
  const auto name = idempotency_key(asked_key);
  if (!name) return reply(error_reply(c.id, name.error()));
  const auto id = text(request.getSandboxId(), "sandboxId");
  if (!id) return reply(error_reply(c.id, id.error()));
  const edge_table::key key{c.from->principal, *name};
  const auto used = table->keys.find(key);
  const bool is_its_key =
      used != table->keys.end() && (id->empty() || used->second.sandbox_id == *id);
  if (!id->empty()) {
    const auto found = on_find({c.from, *id});
    if (!found.who) return reply(error_reply(c.id, found.why, *id));
    if (is_its_key) table->sandboxes.at(*id).withdrawn = true;
    return self->delegate(found.who, c);
  }
  // What waits was asked for after what the key has made was withdrawn.
  if (!is_its_key || waiting_keys.contains(key)) return on_withdraw(c, key);
  done_withdrawals.add(key, now());
  auto& e = table->sandboxes.at(used->second.sandbox_id);
  e.withdrawn = true;
  return self->delegate(actor_of(e), c);
}

/// No sandbox was made with the key, and none will be.
reply edge_state::on_withdraw(const call& c, const edge_table::key& key) {
  if (const auto waiting = waiting_keys.find(key); waiting != waiting_keys.end()) {
    fail_create(waiting->second, {errc::cancelled, "it was withdrawn by its client", 0});
    done_withdrawals.add(key, now());
  } else if (!done_withdrawals.contains(key, now())) {
    // It may still be on its way, over another connection.
    early_withdrawals.add(key, now());
  }
  const auto& name = key.second;
  return reply(error_reply(
      c.id, {errc::not_found, "no sandbox was made with idempotency key '" + name + "'", 0}, name));
}

found_key edge_state::on_find_key(const find_key& m) {
  const edge_table::key key{m.principal, m.key};
  if (table->keys.contains(key) || waiting_keys.contains(key)) return {key_state::used};
  if (early_withdrawals.contains(key, now())) return {key_state::withdrawn};
  return {key_state::unknown};
}

std::optional<time_point> edge_state::pending_create::abandoned_until() const {
  if (waiters.empty()) return std::nullopt;
  auto last = time_point::min();
  for (const auto& w : waiters) {
    if (!w.abandoned) return std::nullopt;
    last = std::max(last, *w.abandoned);
  }
  return last + abandon_grace;
}

/// Whether a create still waits here or has become a sandbox is not known to its connection.
void edge_state::on_abandoned(const creates_abandoned& m) {
  if (m.serials.empty()) return;
  for (auto& [token, p] : creates) {
    for (auto& w : p.waiters) {
      if (m.names(w.request.from, w.request.serial)) w.abandoned = now();
    }
  }
  for (auto& [id, e] : table->sandboxes) {
    if (e.live && e.actor && e.book->status.record()->owner == m.from->principal)
      caf::anon_send(e.actor, m);
  }
  deadlines.want(self, now() + abandon_grace);
}

}  // namespace dsec::actors

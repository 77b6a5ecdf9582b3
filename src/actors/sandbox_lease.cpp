// The lease that a sandbox is bound to: it lives as long as the client that asked for it, unless it
// is detached. Which lease it is stands in its record; when it ends is the lease table's to say and
// the reaper's to watch.
#include <caf/send.hpp>
#include <chrono>
#include <utility>

#include "actors/sandbox.hpp"

namespace dsec::actors {

using base::errc;

caf::result<reply> sandbox_state::on_set_detached(const call& c,
                                                  proto::SetDetached::Reader request) {
  const bool detach = request.getDetached();
  if (!detach && !c.from->lease) {
    return refusal(c, {errc::invalid_argument,
                       "this connection has no lease to bind a sandbox to; name one in hello", 0});
  }
  if (phase() >= base::phase::stopping) return refusal(c, why_not_running(book->record));
  bind(detach ? lease{} : c.from->lease);
  auto w = make_waiter(c);
  auto promise = w.promise;
  answer_when_written(std::move(w));
  return promise;
}

void sandbox_state::bind(const lease& l) {
  if (!recorded_lease) recorded_lease = book->record.lease;
  book->record.lease = l;
  env->writer->hurry(publish());
  if (l) caf::anon_send(parent, lease_bound{id()});
}

/// Who was told that it could not be written was told that nothing has changed.
void sandbox_state::on_lease_written(const lease_written& m) {
  if (!recorded_lease) return;
  const bool newest = m.bound == book->record.lease;
  if (m.ok) {
    recorded_lease = newest ? std::nullopt : std::optional(m.bound);
  } else if (newest) {
    const auto before = *recorded_lease;
    bind(before);
    recorded_lease.reset();
  }
}

/// A client that was started again has another lease, and asks with the old idempotency key for
/// what it had: that lives with the new one.
void sandbox_state::follow_lease(const caller& from) {
  const auto& now = book->record.lease;
  if (!now || !from.lease || from.lease.id == now.id) return;
  if (phase() < base::phase::stopping) bind(from.lease);
}

/// The reaper looked, then sent this; the client may have come back in between.
void sandbox_state::end_if_unleased() {
  const auto& l = book->record.lease;
  if (!l) return;
  const auto ends = env->leases->ends(book->record.owner, l);
  if (!ends || *ends > now()) return;
  end(base::cause::ttl,
      "its client, of lease '" + l.id + "', has been gone for " + std::to_string(l.ms) + " ms");
}

}  // namespace dsec::actors

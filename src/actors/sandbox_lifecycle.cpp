// The sandbox's way through its phases. Kernel work is two jobs: start (start pool) and stop (kill
// pool). A stop waits for the record of its phase before it acts, a start before it is told; both
// answer through the ledger's inbox, so that an actor that was started again in between hears of
// them all the same.
#include <algorithm>
#include <caf/send.hpp>
#include <chrono>
#include <utility>

#include "actors/sandbox.hpp"
#include "base/failpoint.hpp"
#include "base/log.hpp"

namespace dsec::actors {
namespace {

using base::cause;
using base::errc;

/// From an incomplete stop to the next try: what holds it up, such as a disk that does not answer,
/// lasts.
constexpr std::chrono::seconds stop_again_after{10};

bool worth_info(base::phase to) {
  return to == base::phase::running || to >= base::phase::stopping;
}

/// To somebody who asks with its idempotency key for a sandbox that has ended.
base::error why_no_other(const sandbox_record& r) {
  auto why = why_not_running(r);
  why.message += "; a create makes a new one under another idempotency key";
  return why;
}

/// What the start pool runs. The record is written while the backend starts, and waited for before
/// anybody hears of the sandbox; one that cannot be recorded is stopped again. What a kill -9 in
/// between leaves without a record is cleared at the next start (orphans.hpp).
void start_job(const worker& env, const ledger_ptr& book, const backends::start_spec& spec,
               record_writer::ticket written) {
  const auto give_up = [&](base::error why) {
    book->events.add(start_done{nullptr, std::move(why)});
  };
  if (book->start_cancelled) return give_up({errc::cancelled, "stopped before it started", 0});
  if (auto ok = base::failpoint::check("sandbox.start"); !ok) return give_up(std::move(ok).error());
  env.writer->hurry(written);
  book->events.add(start_begun{});
  auto instance = env.backend->start(spec, make_sink(book));
  if (!instance) return give_up(std::move(instance).error());
  std::optional<base::error> unrecorded;
  if (auto ok = env.writer->wait(written); !ok) unrecorded = std::move(ok).error();
  book->events.add(
      start_done{std::shared_ptr<backends::instance>(std::move(*instance)), std::move(unrecorded)});
}

}  // namespace

record_writer::ticket sandbox_state::publish() {
  auto snapshot = std::make_shared<const sandbox_record>(book->record);
  const auto written = env->writer->save(snapshot);
  book->status.publish(std::move(snapshot));
  return written;
}

record_writer::ticket sandbox_state::transition(base::phase to, cause why, std::string detail) {
  auto& r = book->record;
  if (!base::can_transition(r.phase, to)) {
    base::log::error("illegal_transition",
                     {{"sandbox", id()}, {"from", to_string(r.phase)}, {"to", to_string(to)}});
    return 0;
  }
  const auto from = std::exchange(r.phase, to);
  env->metrics->count_phase(from, -1);
  env->metrics->count_phase(to, 1);
  if (r.cause == cause::none) {
    r.cause = why;
    if (!detail.empty()) r.detail = std::move(detail);
  }
  if (base::is_terminal(to)) {
    note_end(r, env->wall());
  }
  const auto written = publish();
  const auto spent = std::chrono::duration_cast<std::chrono::microseconds>(now() - phase_since);
  phase_since = now();
  base::log::write(worth_info(to) ? base::log::level::info : base::log::level::debug,
                   "sandbox_phase",
                   {{"sandbox", id()},
                    {"trace", book->trace},
                    {"from", to_string(from)},
                    {"to", to_string(to)},
                    {"cause", to_string(r.cause)},
                    {"spent_us", spent.count()}});
  tell_phase();
  return written;
}

void sandbox_state::tell_phase() {
  const auto& r = book->record;
  event e{.owner = r.owner, .sandbox_id = id(), .trace = book->trace, .detail = r.detail};
  switch (r.phase) {
    case base::phase::running:
      e.kind = event_kind::sandbox_running;
      break;
    case base::phase::stopped:
      e.kind = event_kind::sandbox_stopped;
      break;
    case base::phase::failed:
      e.kind = event_kind::sandbox_failed;
      break;
    default:
      return;
  }
  if (base::is_terminal(r.phase)) e.cause = to_string(r.cause);
  env->events->add(std::move(e));
}

/// Goes on where an actor before this one was.
void sandbox_state::resume() {
  if (book->start_in_flight || book->stop_in_flight || book->released) return;
  switch (phase()) {
    case base::phase::requested:
    case base::phase::admitted:
    case base::phase::preparing:
    case base::phase::starting:
      return book->instance ? on_instance() : start();
    case base::phase::stopping:
    case base::phase::stopped:
    case base::phase::failed:
      return stop_instance(env->writer->save(book->status.record()));
    default:
      return;
  }
}

void sandbox_state::start() {
  if (phase() == base::phase::requested) transition(base::phase::admitted);
  const auto written = phase() == base::phase::admitted ? transition(base::phase::preparing)
                                                        : env->writer->save(book->status.record());
  book->start_in_flight = true;
  auto submitted =
      env->start_pool->submit([env = env, book = book, spec = start_spec_of(book->record),
                               written] { start_job(*env, book, spec, written); });
  if (!submitted) book->events.add(start_done{nullptr, submitted.error()});
}

void sandbox_state::apply(const start_begun&) {
  if (phase() == base::phase::preparing) transition(base::phase::starting);
}

void sandbox_state::apply(const start_done& e) {
  book->start_in_flight = false;
  if (!e.instance) return fail_start(*e.why);
  book->instance = e.instance;
  if (e.why) {  // it runs, but its record could not be written
    book->start_error = e.why;
    book->early_gone = instance_gone{cause::backend, e.why->to_string()};
  }
  on_instance();
}

/// The backend has started it.
void sandbox_state::on_instance() {
  if (phase() == base::phase::stopping) return stop_instance(0);
  if (book->early_gone) return on_stillborn(*std::exchange(book->early_gone, std::nullopt));
  transition(base::phase::running);
  book->ever_ran = true;
  answer_create_waiters();
}

/// It died as soon as it ran, before the start was told; or it must not run.
void sandbox_state::on_stillborn(const instance_gone& e) {
  book->record.key.clear();
  const auto written = transition(base::phase::failed, e.why, e.detail);
  if (!book->start_error) book->start_error = why_not_running(book->record);
  answer_create_waiters();
  stop_instance(written);
}

/// The backend has undone everything already.
void sandbox_state::fail_start(const base::error& why) {
  if (!book->start_error) book->start_error = why;
  book->record.key.clear();  // it never ran: a retry with the key makes a new one
  if (phase() == base::phase::stopping) {
    transition(base::phase::stopped);
  } else {
    transition(base::phase::failed, cause::backend, why.to_string());
  }
  release();
}

void sandbox_state::end(cause why, const std::string& detail) {
  if (stop_again) stop_instance(0);
  if (!base::can_transition(phase(), base::phase::stopping)) return;
  const bool has_instance = book->instance != nullptr;
  if (!book->ever_ran) book->record.key.clear();  // a retry makes a new one, after a restart too
  const auto written = transition(base::phase::stopping, why, detail);
  if (has_instance) return stop_instance(written);
  book->start_cancelled = true;
  book->start_error = base::error{errc::cancelled,
                                  "sandbox '" + id() + "' was stopped before it ran: " + detail, 0};
  answer_create_waiters();
  if (book->start_in_flight) return;  // start_done goes on from here
  transition(base::phase::stopped);
  release();
}

void sandbox_state::on_end(const end_sandbox& m) {
  if (m.withdrawn) give_up_key();
  end(m.why, m.detail);
}

/// The reaper looked, then sent this; what was asked for in between counts as use.
void sandbox_state::end_if_unused() {
  const auto idle = std::chrono::seconds(book->record.spec.idle_ttl_seconds);
  if (idle.count() == 0 || book->status.busy() || now() - book->status.last_use() < idle) return;
  end(cause::ttl, "no request for " + std::to_string(idle.count()) + " s");
}

void sandbox_state::end_if_abandoned(time_point at) {
  const auto since = book->askers.all_gone();
  if (!since || at < *since + abandon_grace || book->withdrawn) return;
  book->withdrawn = true;
  book->record.key.clear();  // who asks again gets a new one
  end(cause::killed, "the client that asked for it has gone");
}

void sandbox_state::stop_instance(record_writer::ticket written) {
  if (book->stop_in_flight || book->released) return;
  if (!book->instance) {
    if (phase() == base::phase::stopping) transition(base::phase::stopped);
    return release();
  }
  book->stop_in_flight = true;
  stop_again.reset();
  const bool keep = is_to_be_kept(book->record) && !book->kept;
  auto job = [env = env, book = book, instance = book->instance, written,
              failed = keep ? book->status.record() : nullptr] {
    // A store that cannot be written must not keep a sandbox alive: the error is the writer's to
    // report.
    if (written != 0) static_cast<void>(env->writer->wait(written));
    if (failed) env->keep_failed(*failed, *instance);
    auto stopped = instance->stop();
    book->events.add(stop_done{stopped ? std::nullopt : std::optional(std::move(stopped).error())});
  };
  auto submitted = env->kill_pool->submit(std::move(job));
  if (!submitted) return book->events.add(stop_done{submitted.error()});
  book->kept = book->kept || keep;
}

void sandbox_state::apply(const stop_done& e) {
  book->stop_in_flight = false;
  const bool first = e.why && !std::exchange(book->stop_incomplete, true);
  if (e.why)
    base::log::error("sandbox_stop_incomplete",
                     {{"sandbox", id()}, {"trace", book->trace}, {"why", e.why->to_string()}});
  if (first) {
    book->record.detail +=
        (book->record.detail.empty() ? "" : "; ") + ("clean-up: " + e.why->to_string());
  }
  if (phase() == base::phase::stopping) {
    transition(e.why ? base::phase::failed : base::phase::stopped);
  } else if (first) {
    publish();
  }
  if (!e.why || env->health->draining()) return release();
  // What is left of it has its slot and its memory, so its place is not given to others yet.
  answer_all();
  stop_again = now() + stop_again_after;
  rearm();
}

void sandbox_state::apply(const instance_gone& e) {
  // While it stops, the first cause stands.
  if (!base::can_transition(phase(), base::phase::failed) || phase() == base::phase::stopping)
    return;
  // The word that it has started comes by another thread and may be the slower.
  if (book->instance == nullptr) {
    book->early_gone = e;
    return;
  }
  const auto written = transition(base::phase::failed, e.why, e.detail);
  lose_commands();
  fail_file_operations(why_not_running(book->record));
  stop_instance(written);
}

/// Nothing of it is left on the host: whoever waited is answered, the edge gives its place to
/// others.
void sandbox_state::release() {
  book->released = true;
  answer_all();
  caf::anon_send(parent, sandbox_released{id(), book->ever_ran && !book->withdrawn});
}

/// It has ended, and nobody need wait for the rest of its clean-up.
void sandbox_state::answer_all() {
  lose_commands();
  answer_create_waiters();
  answer_stop_waiters();
  fail_file_operations(why_not_running(book->record));
}

void sandbox_state::on_new_parent(const sandbox_parent& edge) {
  parent = edge;
  if (book->released)
    caf::anon_send(parent, sandbox_released{id(), book->ever_ran && !book->withdrawn});
}

caf::result<reply> sandbox_state::on_stop(const call& c, proto::SandboxRef::Reader request,
                                          capnp::Text::Reader key) {
  const std::string_view name(key.begin(), key.size());
  const bool by_key = request.getSandboxId().size() == 0;
  if (by_key || (!name.empty() && name == book->record.key)) give_up_key();
  end(cause::killed, by_key ? withdrawn_by_client : "stopped on request");
  auto w = make_waiter(c);
  auto promise = w.promise;
  // One that has failed by itself may still be in the way of being removed.
  if (!book->released) {
    stop_waiters.push_back(std::move(w));
  } else if (book->withdrawn) {
    answer_when_written(std::move(w));  // that the key is free
  } else {
    w.answer(sandbox_reply(w.id, view()));
  }
  return promise;
}

/// The edge knows already: a create with it makes a new sandbox.
void sandbox_state::give_up_key() {
  if (std::exchange(book->withdrawn, true)) return;
  book->record.body_hash.clear();
  if (phase() >= base::phase::stopping) publish();
}

void sandbox_state::answer_stop_waiters() {
  for (auto& w : std::exchange(stop_waiters, {})) w.answer(sandbox_reply(w.id, view()));
}

void sandbox_state::answer_create_waiters() {
  if (!book->ever_ran && !book->start_error) return;
  for (auto& w : std::exchange(create_waiters, {})) {
    if (!book->ever_ran) {
      w.refuse(*book->start_error, id());
    } else if (phase() >= base::phase::stopping) {
      w.refuse(why_no_other(book->record), id());
    } else if (recorded_lease) {
      answer_when_written(std::move(w));
    } else {
      w.answer(sandbox_reply(w.id, view()));
    }
  }
}

void sandbox_state::expire_lifecycle_waiters(time_point at) {
  const auto late = [&](const waiter& w) { return w.deadline <= at; };
  const bool created_for_somebody = !create_waiters.empty();
  for (auto& w : create_waiters) {
    if (late(w))
      w.refuse({errc::deadline_exceeded, "sandbox did not start in time; it is being removed", 0},
               id());
  }
  std::erase_if(create_waiters, late);
  if (created_for_somebody && create_waiters.empty())
    end(cause::killed, "did not start before its deadline");
  for (auto& w : stop_waiters) {
    if (late(w))
      w.refuse({errc::deadline_exceeded, "sandbox '" + id() + "' is still being stopped", 0}, id());
  }
  std::erase_if(stop_waiters, late);
}

}  // namespace dsec::actors

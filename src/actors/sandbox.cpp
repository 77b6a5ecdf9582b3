#include "actors/sandbox.hpp"

#include <algorithm>
#include <caf/send.hpp>
#include <optional>
#include <utility>

#include "actors/runtime.hpp"
#include "base/log.hpp"

namespace dsec::actors {

using base::errc;

sandbox_state::~sandbox_state() {
  if (book) book->events.wake_with(nullptr);
  for (auto& w : create_waiters) w.abandon();
  for (auto& w : stop_waiters) w.abandon();
  for (auto& [command_id, operation] : file_operations) {
    for (auto& w : operation.who) w.abandon();
  }
}

void sandbox_state::begin(worker_ptr worker, ledger_ptr ledger, sandbox_parent edge) {
  env = std::move(worker);
  book = std::move(ledger);
  parent = std::move(edge);
  phase_since = now();
  book->status.touch(now());
  publish_use();
  book->events.wake_with([me = sandbox_self{self}] { caf::anon_send(me, inbox_filled{}); });
  resume();
  on_inbox();
  rearm();
}

reply sandbox_state::refusal(const call& c, const base::error& why) const {
  return reply(error_reply(c.id, why, id()));
}

base::error sandbox_state::too_many_wait(std::size_t most, const char* what) const {
  return {errc::capacity,
          std::to_string(most) + " requests wait for " + what + " of sandbox '" + id() +
              "', as many as may; try again when some of them were answered",
          0};
}

waiter sandbox_state::make_waiter(const call& c) {
  deadlines.want(self, c.deadline);
  return {self->make_response_promise<reply>(), c.id, c.deadline, c.from};
}

sandbox_view sandbox_state::view() const {
  return {book->status.record(), book->commands.live()};
}

void sandbox_state::publish_use() {
  book->status.touch(now());
  // Of one that is sealed nobody knows that it is idle.
  const auto others = file_operations.size() + (book->sealed ? 1 : 0);
  book->status.set_busy(book->commands.live(), static_cast<std::uint32_t>(others));
}

bool sandbox_state::answer_from_pool(waiter w, std::function<proto::frame()> job) {
  return desk.hand_out(sandbox_self{self}, *env->copy_pool, std::move(w), std::move(job));
}

void sandbox_state::answer_when_written(waiter w) {
  const auto written = env->writer->save(book->status.record());
  const auto bound = book->record.lease;
  const auto request = w.id;
  const auto handed = answer_from_pool(std::move(w), [me = sandbox_self{self}, env = env,
                                                      view = view(), written, request] {
    const auto ok = env->writer->wait(written);
    caf::anon_send(me, lease_written{view.record->lease, ok.has_value()});
    return ok ? sandbox_reply(request, view) : error_reply(request, ok.error(), view.record->id);
  });
  if (!handed) on_lease_written({bound, false});
}

namespace {

/// Nothing about its commands or files.
bool is_about_itself(proto::Request::Body::Which what) {
  using body = proto::Request::Body;
  return what == body::GET_SANDBOX || what == body::STOP_SANDBOX || what == body::SET_DETACHED;
}

}  // namespace

caf::result<reply> sandbox_state::on_call(const call& c) {
  // The edge has checked this when it named us; connections remember names.
  if (c.from->principal != book->record.owner) {
    return refusal(c, {errc::not_found, "there is no sandbox '" + id() + "'", 0});
  }
  std::optional<caf::result<reply>> out;
  const auto readable = c.request.read([&](proto::Request::Reader request) {
    const auto body = request.getBody();
    // Whoever watches a sandbox does not use it.
    if (body.isGetUsage()) return void(out = on_get_usage(c));
    book->status.touch(now());
    book->askers.claimed = true;
    if (book->sealed && !is_about_itself(body.which())) {
      out = refusal(c, *book->sealed);
      return;
    }
    switch (body.which()) {
      case proto::Request::Body::GET_SANDBOX:
        out = reply(sandbox_reply(c.id, view()));
        break;
      case proto::Request::Body::STOP_SANDBOX:
        out = on_stop(c, body.getStopSandbox(), request.getIdempotencyKey());
        break;
      case proto::Request::Body::EXEC:
        out = on_exec(c, body.getExec());
        break;
      case proto::Request::Body::GET_COMMAND:
        out = on_get_command(c, body.getGetCommand());
        break;
      case proto::Request::Body::KILL_COMMAND:
        out = on_kill_command(c, body.getKillCommand());
        break;
      case proto::Request::Body::LIST_COMMANDS:
        out = on_list_commands(c);
        break;
      case proto::Request::Body::READ_OUTPUT:
        out = on_read_output(c, body.getReadOutput());
        break;
      case proto::Request::Body::READ_FILE:
        out = on_read_file(c, body.getReadFile());
        break;
      case proto::Request::Body::WRITE_FILE:
        out = on_write_file(c, body.getWriteFile());
        break;
      case proto::Request::Body::SET_DETACHED:
        out = on_set_detached(c, body.getSetDetached());
        break;
      default:
        out = refusal(c, {errc::unsupported, "a sandbox does not know this request", 0});
    }
  });
  if (!out) return refusal(c, readable ? base::error{} : readable.error());
  return std::move(*out);
}

caf::result<reply> sandbox_state::on_get_usage(const call& c) {
  if (phase() != base::phase::running) return refusal(c, why_not_running(book->record));
  auto w = make_waiter(c);
  auto promise = w.promise;
  answer_from_pool(std::move(w), [instance = book->instance, request = c.id, sandbox = id()] {
    const auto used = instance->usage();
    return used ? usage_reply(request, *used) : error_reply(request, used.error(), sandbox);
  });
  return promise;
}

caf::result<reply> sandbox_state::on_await_running(const await_running& m) {
  if (book->withdrawn)
    return refusal(m.request, {errc::unavailable, "its sandbox is being removed; try again", 0});
  constexpr std::size_t many = 16;
  book->status.touch(now());
  follow_lease(*m.request.from);
  auto& askers = book->askers;
  if (askers.list.size() < many) {
    askers.list.push_back({m.request.from, m.request.serial, m.abandoned});
  } else {
    askers.claimed = true;
  }
  if (m.abandoned) deadlines.want(self, *m.abandoned + abandon_grace);
  create_waiters.push_back(make_waiter(m.request));
  auto promise = create_waiters.back().promise;
  answer_create_waiters();
  return promise;
}

void sandbox_state::on_inbox() {
  for (auto& event : book->events.take()) book->todo.push_back(std::move(event));
  while (!book->todo.empty()) {
    const auto event = std::move(book->todo.front());
    book->todo.pop_front();
    std::visit([this](const auto& e) { apply(e); }, event);
  }
}

void sandbox_state::on_abandoned(const creates_abandoned& m) {
  for (auto& a : book->askers.list) {
    if (m.names(a.from.lock(), a.serial)) a.gone = now();
  }
  if (const auto since = book->askers.all_gone()) deadlines.want(self, *since + abandon_grace);
}

void sandbox_state::on_alarm(const alarm_rang& rang) {
  if (!deadlines.is_current(rang)) return;
  const auto at = now();
  end_if_abandoned(at);
  expire_lifecycle_waiters(at);
  expire_command_waits(at);
  expire_output_waits(at);
  expire_file_operations(at);
  if (stop_again && *stop_again <= at) stop_instance(0);
  rearm();
}

void sandbox_state::rearm() {
  auto earliest =
      std::min({stop_again.value_or(time_point::max()), waits.earliest(), outputs.earliest()});
  const auto see = [&](const waiter& w) { earliest = std::min(earliest, w.deadline); };
  for (const auto& w : create_waiters) see(w);
  for (const auto& w : stop_waiters) see(w);
  for (const auto& [command_id, operation] : file_operations) {
    for (const auto& w : operation.who) see(w);
  }
  if (const auto since = book->askers.all_gone(); since && !book->withdrawn)
    earliest = std::min(earliest, *since + abandon_grace);
  if (earliest != time_point::max()) deadlines.want(self, earliest);
}

void sandbox_state::on_forget() {
  // Its files go as a whole (orphans.hpp). The end of an instance may wait for threads.
  static_cast<void>(
      env->background_pool->submit([instance = std::exchange(book->instance, nullptr)] {}));
  self->quit();
}

sandbox_self::behavior_type sandbox(sandbox_self::stateful_pointer<sandbox_state> self,
                                    worker_ptr env, ledger_ptr book, sandbox_parent parent) {
  install_handlers(self);
  self->state.begin(std::move(env), std::move(book), std::move(parent));
  return {
      [self](const call& c) { return self->state.on_call(c); },
      [self](const await_running& m) { return self->state.on_await_running(m); },
      [self](const end_sandbox& m) { self->state.on_end(m); },
      [self](end_if_idle) { self->state.end_if_unused(); },
      [self](end_if_unleased) { self->state.end_if_unleased(); },
      [self](const creates_abandoned& m) { self->state.on_abandoned(m); },
      [self](const new_parent& m) { self->state.on_new_parent(m.edge); },
      [self](forget_sandbox) { self->state.on_forget(); },
      [self](inbox_filled) { self->state.on_inbox(); },
      [self](const lease_written& m) { self->state.on_lease_written(m); },
      [self](const answer_made& m) { self->state.desk.deliver(m); },
      [self](const output_read& m) { self->state.on_output_read(m); },
      [self](const alarm_rang& m) { self->state.on_alarm(m); },
  };
}

}  // namespace dsec::actors

#include "actors/ws_conn.hpp"

#include <algorithm>
#include <caf/send.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "actors/replies.hpp"
#include "actors/request_name.hpp"
#include "actors/runtime.hpp"
#include "actors/text_checks.hpp"
#include "base/ids.hpp"
#include "base/log.hpp"
#include "base/text.hpp"
#include "proto/limits.hpp"

namespace dsec::actors {
namespace {

using base::errc;
using body = proto::Request::Body;

/// Id of the sandbox a request is about; nullopt for requests that are about none.
std::optional<capnp::Text::Reader> sandbox_of(body::Reader request) {
  switch (request.which()) {
    case body::GET_SANDBOX:
      return request.getGetSandbox().getSandboxId();
    case body::STOP_SANDBOX:
      return request.getStopSandbox().getSandboxId();
    case body::EXEC:
      return request.getExec().getSandboxId();
    case body::GET_COMMAND:
      return request.getGetCommand().getSandboxId();
    case body::KILL_COMMAND:
      return request.getKillCommand().getSandboxId();
    case body::LIST_COMMANDS:
      return request.getListCommands().getSandboxId();
    case body::READ_OUTPUT:
      return request.getReadOutput().getSandboxId();
    case body::READ_FILE:
      return request.getReadFile().getSandboxId();
    case body::WRITE_FILE:
      return request.getWriteFile().getSandboxId();
    case body::SET_DETACHED:
      return request.getSetDetached().getSandboxId();
    case body::GET_USAGE:
      return request.getGetUsage().getSandboxId();
    default:
      return std::nullopt;
  }
}

/// The sandbox that answers the request; empty: the edge does.
base::result<std::string> addressee(proto::Request::Reader request) {
  const auto asked = sandbox_of(request.getBody());
  // The edge knows the keys.
  const bool names_key = request.getIdempotencyKey().size() > 0;
  if (!asked || (names_key && request.getBody().isStopSandbox())) return std::string();
  DSEC_TRY(auto id, text(*asked, "sandboxId"));
  if (id.empty()) return base::fail(errc::invalid_argument, "sandboxId is missing");
  return id;
}

/// What the reply to a request may weigh at most; 0 for those that are never large. Output that
/// comes inline with a command, or was waited for, is not counted: it is left out when there is no
/// room for it.
std::size_t promise_of(body::Reader request) {
  constexpr std::size_t envelope = 4096;
  const auto data = [](std::uint32_t asked, std::size_t most) {
    return envelope + (asked == 0 ? most : std::min<std::size_t>(asked, most));
  };
  switch (request.which()) {
    case body::READ_FILE:
      return data(request.getReadFile().getLength(), proto::max_data_bytes);
    case body::READ_OUTPUT:
      if (request.getReadOutput().getWaitMs() != 0) return 0;
      return data(request.getReadOutput().getLength(), proto::max_output_bytes);
    case body::LIST_SANDBOXES:
    case body::LIST_COMMANDS:
    case body::LIST_IMAGES:
    case body::LIST_NODES:
      return proto::max_message_bytes;
    default:
      return 0;
  }
}

/// Requests over this size are not kept to be asked again.
constexpr std::size_t large_request = 64U << 10U;
/// Replies over this size are looked at for inline output when there is little room.
constexpr std::size_t large_reply = 64U << 10U;

/// Whoever owns the matter answers this much before the client stops waiting, so that its answer
/// (which says more than "too late") gets there.
std::chrono::milliseconds margin(std::chrono::milliseconds deadline) {
  return std::min(std::chrono::milliseconds(100), deadline / 10);
}

}  // namespace

ws_conn_state::~ws_conn_state() {
  if (!args.session) return;
  args.node.metrics->connections.add(-1);
  args.session->leave("the connection's actor ended");
}

void ws_conn_state::write(proto::frame f) {
  args.node.metrics->sent_bytes.add(f.bytes().size());
  args.session->send(std::move(f));
}

void ws_conn_state::send(const proto::frame& f) {
  write(f);
  args.session->grant(1);
}

void ws_conn_state::hang_up(const std::string& reason) {
  closing = true;
  args.session->close(reason);
}

void ws_conn_state::on_frame(const frame_arrived& m) {
  if (closing) return;
  args.node.metrics->received_bytes.add(m.frame.bytes().size());
  std::uint64_t id = 0;
  proto::view<proto::Request> view(m.frame);
  const auto head =
      view.read([&](proto::Request::Reader request) { id = m.as ? m.as->id : request.getId(); });
  if (!head || id == 0) return hang_up("a request without a readable id");
  const auto ok = view.read([&](proto::Request::Reader request) {
    if (!greeted) return greet(id, request);
    accept(id, request, m);
  });
  if (!ok) send(error_reply(id, ok.error()));
}

void ws_conn_state::on_malformed(const frame_malformed& m) {
  if (closing) return;
  // No id can be read from what is no message.
  write(error_reply(0, m.why));
  hang_up(m.why.message);
}

std::chrono::milliseconds ws_conn_state::time_for(proto::Request::Reader request,
                                                  const frame_arrived& m) const {
  if (m.as) return m.as->left;
  return request.getDeadlineMs() == 0 ? args.node.default_deadline
                                      : std::chrono::milliseconds(request.getDeadlineMs());
}

void ws_conn_state::accept(std::uint64_t id, proto::Request::Reader request,
                           const frame_arrived& m) {
  const auto which = request.getBody().which();
  if (in_flight.contains(id)) {
    return send(
        error_reply(id, {errc::invalid_argument, "a request with this id is still in flight", 0}));
  }
  if (which == body::HELLO)
    return send(error_reply(id, {errc::protocol, "hello was said already", 0}));
  if (which == body::UNSET) {
    return send(error_reply(id, {errc::unsupported, "this server does not know the request", 0}));
  }
  if (answer_about_stream(id, request.getBody())) return;
  const auto wait = time_for(request, m);
  const auto now = self->clock().now();
  auto sandbox_id = addressee(request);
  if (!sandbox_id) return send(error_reply(id, sandbox_id.error()));
  const auto serial = ++last_serial;
  const auto most_bytes = promise_of(request.getBody());
  pending p{serial,
            now + wait,
            *std::move(sandbox_id),
            call{args.from, id, now + wait - margin(wait), msg<proto::Request>(m.frame),
                 m.as ? m.as->trace : trace_of(request, serial), serial, most_bytes},
            false,
            most_bytes,
            which,
            now};
  if (m.as && m.as->admit) p.request.admit_by = now + *m.as->admit;
  if (m.as) p.request.arrival = m.as->arrival;
  deadlines.want(self, p.deadline);
  hold_or_route(in_flight.emplace(id, std::move(p)).first->second);
}

/// The client's, or one of our own.
std::string ws_conn_state::trace_of(proto::Request::Reader request, std::uint64_t serial) {
  const auto asked = request.getTraceId();
  if (asked.size() > 0) return base::shown({asked.begin(), asked.size()}, longest_trace);
  return own_trace(serial);
}

/// The kernel is asked for chance once for a connection.
std::string ws_conn_state::own_trace(std::uint64_t serial) {
  if (own_traces.empty()) own_traces = base::random_token(80) + "-";
  return own_traces + std::to_string(serial);
}

bool ws_conn_state::room_for(std::size_t bytes, std::size_t most) {
  if (large.promised() + bytes > most) return false;
  return args.session->queued_at_most(most - large.promised() - bytes);
}

void ws_conn_state::hold_or_route(pending& p) {
  if (p.promised == 0) return route(p);
  large.hold({p.request.id, p.serial, p.sandbox_id, p.promised, p.request.deadline});
  let_go_held();
}

void ws_conn_state::let_go_held() {
  const auto has_room = [this](std::size_t bytes) { return room_for(bytes); };
  while (const auto r = large.next(self->clock().now(), has_room)) {
    if (auto* p = waiting(r->id, r->serial)) route(*p);
  }
}

/// Nobody waits for them on this connection any more.
void ws_conn_state::abandon_creates() {
  creates_abandoned m{args.from, {}};
  for (const auto& [id, p] : in_flight) {
    if (p.which == body::CREATE_SANDBOX) m.serials.push_back(p.serial);
  }
  // Also when there was none: a coordinator passes it on to its workers.
  caf::anon_send(args.node.gateway, std::move(m));
}

void ws_conn_state::on_lost() {
  abandon_creates();
  // The gateway outlives many connections, and remembers who watches it.
  self->demonitor(args.node.gateway.address());
  self->quit();
}

void ws_conn_state::on_room() {
  if (!closing) let_go_held();
}

void ws_conn_state::route(pending& p) {
  if (p.sandbox_id.empty()) return ask_gateway(p);
  const auto it = known.find(p.sandbox_id);
  if (it == known.end()) return find(p);
  ask_sandbox(p, it->second);
}

void ws_conn_state::ask_gateway(pending& p) {
  self->request(args.node.gateway, caf::infinite, p.request)
      .then(
          [this, id = p.request.id, serial = p.serial](const reply& r) {
            finish(id, serial, r.frame());
          },
          [this, id = p.request.id, serial = p.serial](caf::error&) {
            fail(id, serial, {errc::unavailable, "this part of dsecd is restarting; try again", 0});
          });
  let_go_of_frame(p);
}

/// A large request is in memory until it is dealt with, however long its answer takes. It is not
/// asked again from here: the client is told to, as it is when an actor dies twice.
void ws_conn_state::let_go_of_frame(pending& p) {
  if (p.request.request.frame().bytes().size() < large_request) return;
  p.request.request = msg<proto::Request>(proto::frame());
  p.asked_again = true;
}

void ws_conn_state::find(const pending& p) {
  self->request(args.node.gateway, caf::infinite, find_sandbox{args.from, p.sandbox_id})
      .then(
          [this, id = p.request.id, serial = p.serial](const found_sandbox& found) {
            auto* still = waiting(id, serial);
            if (still == nullptr) return;
            if (!found.who) return fail(id, serial, found.why);
            if (known.size() >= max_known) known.clear();
            known.insert_or_assign(still->sandbox_id, found.who);
            ask_sandbox(*still, found.who);
          },
          [this, id = p.request.id, serial = p.serial](caf::error&) {
            fail(id, serial, {errc::unavailable, "this part of dsecd is restarting; try again", 0});
          });
}

void ws_conn_state::ask_sandbox(pending& p, const callee& who) {
  self->request(who, caf::infinite, p.request)
      .then([this, id = p.request.id,
             serial = p.serial](const reply& r) { finish(id, serial, r.frame()); },
            [this, id = p.request.id, serial = p.serial](caf::error&) {
              on_sandbox_down(id, serial);
            });
  let_go_of_frame(p);
}

/// The remembered actor is dead, or died over the request. Every request about a sandbox may be
/// made twice (a known command is not started again), so it is looked up anew and asked once more.
void ws_conn_state::on_sandbox_down(std::uint64_t id, std::uint64_t serial) {
  auto* p = waiting(id, serial);
  if (p == nullptr) return;
  known.erase(p->sandbox_id);
  if (std::exchange(p->asked_again, true)) {
    return fail(
        id, serial,
        {errc::unavailable, "sandbox '" + p->sandbox_id + "' is being taken up again; retry", 0});
  }
  find(*p);
}

void ws_conn_state::note_answer(const pending& p, const proto::frame& answer) const {
  const auto spent =
      std::chrono::duration_cast<std::chrono::microseconds>(self->clock().now() - p.began);
  args.node.metrics->count_request(p.which, answer, spent);
  base::log::debug("request", {{"trace", p.request.trace},
                               {"peer", args.from->peer},
                               {"request", name_of(p.which)},
                               {"sandbox", p.sandbox_id},
                               {"spent_us", spent.count()}});
}

ws_conn_state::pending* ws_conn_state::waiting(std::uint64_t id, std::uint64_t serial) {
  const auto it = in_flight.find(id);
  return it == in_flight.end() || it->second.serial != serial ? nullptr : &it->second;
}

/// Any number of those who wait for output may get it at once.
bool ws_conn_state::room_for_unpromised(const pending& p, std::size_t bytes) {
  if (p.which == body::READ_OUTPUT)
    return room_for(bytes, proto::max_promised_bytes + proto::max_unpromised_bytes);
  return bytes <= large_reply || room_for(bytes);
}

void ws_conn_state::finish(std::uint64_t id, std::uint64_t serial, const proto::frame& answer) {
  const auto* p = waiting(id, serial);
  if (p == nullptr) return;
  const auto bytes = answer.bytes().size();
  large.end(serial);
  note_answer(*p, answer);
  const bool cut = p->promised == 0 && !room_for_unpromised(*p, bytes);
  in_flight.erase(id);
  send(cut ? without_output(answer) : answer);
  let_go_held();
}

void ws_conn_state::fail(std::uint64_t id, std::uint64_t serial, const base::error& why) {
  const auto* p = waiting(id, serial);
  if (p != nullptr) finish(id, serial, error_reply(id, why, p->sandbox_id));
}

void ws_conn_state::on_alarm(const alarm_rang& rang) {
  if (!deadlines.is_current(rang)) return;
  const auto now = self->clock().now();
  auto earliest = time_point::max();
  std::vector<std::pair<std::uint64_t, std::uint64_t>> late;
  for (const auto& [id, p] : in_flight) {
    if (p.deadline <= now) {
      late.emplace_back(id, p.serial);
    } else {
      earliest = std::min(earliest, p.deadline);
    }
  }
  for (const auto& [id, serial] : late) {
    fail(id, serial, {errc::deadline_exceeded, "no answer before the request's deadline", 0});
  }
  if (earliest != time_point::max()) deadlines.want(self, earliest);
}

void ws_conn_state::on_close(const close_connection& m) {
  if (closing) return;
  const bool expelled = m.code == errc::unauthenticated;
  if (expelled) abandon_creates();
  for (const auto& [id, p] : std::exchange(in_flight, {}))
    write(error_reply(id, {m.code, m.reason, 0}, p.sandbox_id));
  fail_streams({m.code, m.reason, 0});
  closing = true;
  expelled ? args.session->expel(m.reason) : args.session->leave(m.reason);
}

ws_conn_self::behavior_type ws_conn(ws_conn_self::stateful_pointer<ws_conn_state> self,
                                    ws_conn_args args) {
  install_handlers(self, {.down =
                              [self](const caf::down_msg&) {
                                self->state.on_close({"the gateway is restarting"});
                              },
                          .exit = {}});
  self->state.greeted = args.greeted;
  self->state.args = std::move(args);
  self->state.args.node.metrics->connections.add(1);
  self->state.args.node.metrics->connections_opened.add();
  // One that died before it was told of this connection knows nothing of it, nor does the next.
  self->monitor(self->state.args.node.gateway);
  self->state.args.session->grant(static_cast<std::uint32_t>(proto::max_in_flight));
  return {
      [self](const frame_arrived& m) { self->state.on_frame(m); },
      [self](const frame_malformed& m) { self->state.on_malformed(m); },
      [self](room_made) { self->state.on_room(); },
      [self](connection_lost) { self->state.on_lost(); },
      [self](const close_connection& m) { self->state.on_close(m); },
      [self](const alarm_rang& m) { self->state.on_alarm(m); },
      [self](const piece_written& m) { self->state.on_written(m); },
  };
}

}  // namespace dsec::actors

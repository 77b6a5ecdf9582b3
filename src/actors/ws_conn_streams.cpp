// The streams of a connection: each asks its source's sandbox for the next piece, as a client would
// with readOutput and readFile, while it has credit and its last piece has gone to the socket. So
// what a stream holds is one piece, on the way from the spool to the socket. Output that is not
// written yet is waited for by the sandbox (waitMs), which is told when there is some.
#include <algorithm>
#include <caf/send.hpp>
#include <memory>
#include <string>
#include <utility>

#include "actors/replies.hpp"
#include "actors/stream_frames.hpp"
#include "actors/ws_conn.hpp"
#include "proto/limits.hpp"

namespace dsec::actors {
namespace {

using base::errc;
using body = proto::Request::Body;
using namespace std::chrono_literals;

// How long a sandbox waits for output before it is asked again: who waits for a client that has
// gone is rid of after that.
constexpr auto wait_for_output = 20s;
constexpr auto longest_read = 60s;
constexpr unsigned most_losses = 3;

/// Tells the connection when nobody holds the piece any more.
struct written_notice {
  ws_conn_self to;
  piece_written what;
  written_notice(ws_conn_self c, piece_written m) : to(std::move(c)), what(m) {}
  ~written_notice() { caf::anon_send(to, what); }
  written_notice(const written_notice&) = delete;
  written_notice& operator=(const written_notice&) = delete;
};

}  // namespace

bool ws_conn_state::answer_about_stream(std::uint64_t id, body::Reader request) {
  const bool about_stream =
      request.isOpenStream() || request.isStreamCredit() || request.isCloseStream();
  if (!about_stream) return false;
  if (!may_stream) {
    send(error_reply(id, {errc::unsupported,
                          "say in hello that this connection wants the feature 'streams'", 0}));
    return true;
  }
  if (request.isCloseStream()) {
    const auto closed = streams.close(request.getCloseStream().getStreamId());
    send(closed ? stream_reply(id, *closed) : error_reply(id, closed.error()));
  } else if (request.isOpenStream()) {
    answer_about(id, streams.open(request.getOpenStream()));
  } else {
    const auto more = request.getStreamCredit();
    answer_about(id, streams.add_credit(more.getStreamId(), more.getBytes()));
  }
  return true;
}

void ws_conn_state::answer_about(std::uint64_t id, const base::result<stream*>& s) {
  if (!s) return send(error_reply(id, s.error()));
  send(stream_reply(id, **s));
  go_on(**s);
}

void ws_conn_state::go_on(stream& s) {
  if (!s.may_ask() || closing) return;
  const auto it = known.find(s.sandbox_id);
  if (it == known.end()) return find_source(s);
  ask_for_piece(s, it->second);
}

void ws_conn_state::find_source(stream& s) {
  s.asking = true;
  self->request(args.node.gateway, caf::infinite, find_sandbox{args.from, s.sandbox_id})
      .then(
          [this, id = s.id, serial = s.serial](const found_sandbox& found) {
            auto* still = streams.answered(id, serial);
            if (still == nullptr) return;
            if (!found.who) return fail_stream(*still, found.why);
            if (known.size() >= max_known) known.clear();
            known.insert_or_assign(still->sandbox_id, found.who);
            ask_for_piece(*still, found.who);
          },
          [this, id = s.id, serial = s.serial](caf::error&) {
            if (const auto* still = streams.answered(id, serial)) {
              fail_stream(*still,
                          {errc::unavailable, "this part of dsecd is restarting; try again", 0});
            }
          });
}

void ws_conn_state::ask_for_piece(stream& s, const callee& who) {
  s.asking = true;
  const auto request_serial = ++last_serial;
  const call ask{args.from,
                 s.id,
                 self->clock().now() + longest_read,
                 msg<proto::Request>(piece_request(s, wait_for_output)),
                 own_trace(request_serial),
                 request_serial};
  self->request(who, caf::infinite, ask)
      .then(
          [this, id = s.id, serial = s.serial](const reply& r) { on_piece(id, serial, r.frame()); },
          [this, id = s.id, serial = s.serial](caf::error&) { on_source_down(id, serial); });
}

/// The actor died; the next one answers for the same sandbox.
void ws_conn_state::on_source_down(std::uint64_t id, std::uint64_t serial) {
  auto* s = streams.answered(id, serial);
  if (s == nullptr) return;
  known.erase(s->sandbox_id);
  if (++s->losses < most_losses) return find_source(*s);
  fail_stream(*s,
              {errc::unavailable, "sandbox '" + s->sandbox_id + "' is being taken up again", 0});
}

void ws_conn_state::on_piece(std::uint64_t id, std::uint64_t serial, const proto::frame& reply) {
  auto* s = streams.answered(id, serial);
  if (s == nullptr || closing) return;
  s->losses = 0;
  const auto piece = read_piece(*s, reply);
  if (!piece) return fail_stream(*s, piece.error());
  if (piece->failed) {
    write(stream_failed(*s, piece->reply));
    return streams.end(*s);
  }
  if (piece->size == 0 && !piece->total) return go_on(*s);  // nothing was written meanwhile
  s->offset = piece->offset + piece->size;
  s->credit -= std::min(s->credit, piece->size);
  send_piece(*s, stream_data(*s, *piece));
  if (piece->total) streams.end(*s);
}

void ws_conn_state::send_piece(stream& s, const proto::frame& f) {
  s.sending = true;
  write(f.with(
      std::make_shared<const written_notice>(ws_conn_self{self}, piece_written{s.id, s.serial})));
}

void ws_conn_state::on_written(const piece_written& m) {
  if (auto* s = streams.written(m.stream_id, m.serial)) go_on(*s);
}

void ws_conn_state::fail_stream(const stream& s, const base::error& why) {
  write(stream_failed(s, error_reply(0, why, s.sandbox_id)));
  streams.end(s);
}

void ws_conn_state::fail_streams(const base::error& why) {
  for (const auto& s : streams.close_all())
    write(stream_failed(s, error_reply(0, why, s.sandbox_id)));
}

}  // namespace dsec::actors

#include "actors/node.hpp"

#include <algorithm>
#include <caf/send.hpp>
#include <utility>
#include <vector>

#include "actors/peer_frames.hpp"
#include "actors/runtime.hpp"
#include "base/log.hpp"

namespace dsec::actors {

using base::errc;
using body = proto::PeerMessage::Body;

namespace {

bool is_create(const call& c) {
  const auto is =
      c.request.read([](proto::Request::Reader r) { return r.getBody().isCreateSandbox(); });
  return is && *is;
}

}  // namespace

node_state::~node_state() {
  for (auto& [id, p] : calls) p.promise.deliver(caf::make_error(caf::sec::request_receiver_down));
  for (auto& [id, p] : key_calls) p.deliver(caf::make_error(caf::sec::request_receiver_down));
  if (args.session) args.session->close("the link's actor ended");
}

void node_state::begin(node_args a) {
  args = std::move(a);
  hello_until = now() + hello_patience;
  deadlines.want(self, hello_until);
  // Whoever is told of by the cluster is there when the cluster is.
  self->monitor(args.cluster);
  args.session->grant(read_ahead);
}

caf::result<reply> node_state::on_call(const call& c) {
  if (at != stage::up) return caf::make_error(caf::sec::request_receiver_down);
  const auto id = ++last_id;
  const auto bytes = c.request.frame().bytes().size();
  pending p{self->make_response_promise<reply>(), c, channel_for(c.from)};
  if (bytes > large) p.bytes = bytes;
  if (bytes > large || c.promised > large) p.weight = p.bytes + c.promised;
  auto promise = p.promise;
  auto& waiting = calls.emplace(id, std::move(p)).first->second;
  deadlines.want(self, c.deadline);
  if (waiting.weight == 0) {
    send(id, waiting);
  } else {
    share.hold(c.from->principal, id, waiting.weight);
    let_go_held();
  }
  return promise;
}

/// A client that has never asked this worker anything is not known to it.
std::uint64_t node_state::channel_for(const std::shared_ptr<const caller>& from) {
  const auto known = channels.find(from.get());
  // The address of one that is gone may have come again.
  if (known != channels.end() && known->second.from.lock() == from) return known->second.id;
  if (known != channels.end()) args.session->send(close_channel_frame(known->second.id));
  const auto id = ++last_id;
  channels.insert_or_assign(from.get(), channel{id, from});
  args.session->send(open_channel_frame(id, *from));
  return id;
}

void node_state::send(std::uint64_t id, pending& p) {
  p.sent = true;
  args.session->send(request_frame(p.channel, id, p.request, now(), p.bytes > 0));
  if (p.bytes == 0) p.request = p.request.without_frame();
}

void node_state::let_go_held() {
  while (share.holds_any() && args.session->queued_at_most(queue_level)) {
    const auto id = share.next();
    if (!id) return;
    if (const auto it = calls.find(*id); it != calls.end()) send(*id, it->second);
  }
}

/// Its bytes are where they belong, or nowhere: its client may send more.
void node_state::on_taken(std::uint64_t call_id) {
  if (const auto late = untaken.extract(call_id)) {
    share.release(late.mapped().first, late.mapped().second);
    return let_go_held();
  }
  const auto it = calls.find(call_id);
  if (it == calls.end() || !it->second.sent || it->second.bytes == 0) return;  // it was answered
  auto& p = it->second;
  p.weight -= p.bytes;
  share.release(p.request.from->principal, std::exchange(p.bytes, 0));
  p.request = p.request.without_frame();
  let_go_held();
}

/// Nobody waits for its answer any more. A large request that was sent may be with the worker all
/// the same, even when it is answered: its deadline may have passed there.
node_state::pending node_state::take(std::unordered_map<std::uint64_t, pending>::iterator it) {
  if (!it->second.sent && is_create(it->second.request)) ++unsent;
  auto p = std::move(it->second);
  const auto id = it->first;
  calls.erase(it);
  const auto& who = p.request.from->principal;
  if (!p.sent) {
    share.drop(who, id);
  } else {
    if (p.bytes > 0) untaken.emplace(id, std::pair(who, p.bytes));
    share.release(who, p.weight - p.bytes);
  }
  return p;
}

caf::result<found_key> node_state::on_find_key(const find_key& m) {
  if (at != stage::up) return caf::make_error(caf::sec::request_receiver_down);
  const auto id = ++last_id;
  args.session->send(find_key_frame(id, m));
  return key_calls.emplace(id, self->make_response_promise<found_key>()).first->second;
}

/// The connection is gone, whether or not it had creates under way: its other end knows about
/// those.
void node_state::on_abandoned(const creates_abandoned& m) {
  const auto it = channels.find(m.from.get());
  if (it != channels.end()) end_channel(it->second.id);
}

void node_state::on_lease(const lease_changed& m) {
  if (at == stage::up) args.session->send(leases_frame({m}));
}

void node_state::on_frame(const frame_arrived& m) {
  if (at == stage::closing) return;
  proto::view<proto::PeerMessage> view(m.frame);
  const auto ok = view.read([&](proto::PeerMessage::Reader message) -> base::result<void> {
    if (at == stage::up) return on_message(message);
    on_handshake(message);
    return {};
  });
  if (!ok) return hang_up(ok.error());
  args.session->grant(1);
}

base::result<void> node_state::on_message(proto::PeerMessage::Reader message) {
  const auto b = message.getBody();
  switch (b.which()) {
    case body::REPLY:
      return on_reply(b.getReply());
    case body::REPORT: {
      auto report = read_report(b.getReport());
      report.creates += unsent;  // there is nothing of them to be counted
      caf::anon_send(args.cluster, node_reported{hello.edge, self->id(), std::move(report)});
      return {};
    }
    case body::TAKEN:
      on_taken(b.getTaken());
      return {};
    case body::FOUND_KEY: {
      auto found = key_calls.extract(b.getFoundKey().getCallId());
      if (found) found.mapped().deliver(found_key{read_key_state(b.getFoundKey())});
      return {};
    }
    case body::CHANNEL_CLOSED:
      end_channel(b.getChannelClosed());
      return {};
    default:
      return base::fail(errc::protocol, "a message that no worker sends");
  }
}

base::result<void> node_state::on_reply(proto::PeerReply::Reader answer) {
  const auto it = calls.find(answer.getCallId());
  if (it == calls.end()) return {};  // it is too late
  const auto data = answer.getReply();
  const auto bytes = std::as_bytes(std::span(data.begin(), data.size()));
  DSEC_TRY(auto frame, proto::frame::from_reply(bytes, it->second.request.id));
  take(it).promise.deliver(reply(std::move(frame)));
  let_go_held();
  return {};
}

/// Who waits for an answer over it asks anew.
void node_state::end_channel(std::uint64_t id) {
  args.session->send(close_channel_frame(id));
  std::erase_if(channels, [&](const auto& c) { return c.second.id == id; });
  std::vector<std::uint64_t> lost;
  for (const auto& [call_id, p] : calls) {
    if (p.channel == id) lost.push_back(call_id);
  }
  for (const auto call_id : lost) {
    take(calls.find(call_id)).promise.deliver(caf::make_error(caf::sec::request_receiver_down));
  }
  let_go_held();
}

void node_state::on_room() {
  let_go_held();
}

/// Of connections whose actors died without a word.
void node_state::forget_gone_channels() {
  std::erase_if(channels, [this](const auto& c) {
    if (!c.second.from.expired()) return false;
    args.session->send(close_channel_frame(c.second.id));
    return true;
  });
}

void node_state::on_alarm(const alarm_rang& rang) {
  if (!deadlines.is_current(rang)) return;
  if (at < stage::up && now() >= hello_until) {
    return hang_up({errc::unauthenticated, "a worker that does not say in time who it is", 0});
  }
  auto earliest = at < stage::up ? hello_until : time_point::max();
  std::vector<std::uint64_t> late;
  for (const auto& [id, p] : calls) {
    if (p.request.deadline <= now()) {
      late.push_back(id);
    } else {
      earliest = std::min(earliest, p.request.deadline);
    }
  }
  for (const auto id : late) {
    auto p = take(calls.find(id));
    p.promise.deliver(
        reply(error_reply(p.request.id, {errc::deadline_exceeded,
                                         "worker '" + hello.edge + "' has not answered", 0})));
  }
  forget_gone_channels();
  let_go_held();
  if (earliest != time_point::max()) deadlines.want(self, earliest);
}

void node_state::hang_up(const base::error& why) {
  if (at == stage::closing) return;
  at = stage::closing;
  base::log::warn("worker_link_closed",
                  {{"edge", hello.edge}, {"peer", args.peer}, {"why", why.message}});
  args.session->close(why.message);
  self->quit();
}

node_self::behavior_type linked_node(node_self::stateful_pointer<node_state> self, node_args args) {
  install_handlers(self, {.down = [self](const caf::down_msg&) { self->quit(); }, .exit = {}});
  self->state.begin(std::move(args));
  return {
      [self](const call& c) { return self->state.on_call(c); },
      [self](const find_key& m) { return self->state.on_find_key(m); },
      [self](const creates_abandoned& m) { self->state.on_abandoned(m); },
      [self](const lease_changed& m) { self->state.on_lease(m); },
      [self](const close_link& m) {
        self->state.hang_up({errc::unavailable, m.reason, 0});
      },
      [self](const frame_arrived& m) { self->state.on_frame(m); },
      [self](const frame_malformed& m) { self->state.hang_up(m.why); },
      [self](room_made) { self->state.on_room(); },
      [self](connection_lost) { self->quit(); },
      [self](const alarm_rang& m) { self->state.on_alarm(m); },
  };
}

net::session_handler open_node(caf::actor_system& system, node_args args) {
  node_actor link = system.spawn(linked_node, std::move(args));
  return {
      .message =
          [link](proto::frame f) {
            caf::anon_send(link, frame_arrived{std::move(f), {}});
          },
      .malformed = [link](base::error e) { caf::anon_send(link, frame_malformed{std::move(e)}); },
      .room = [link] { caf::anon_send(link, room_made{}); },
      .closed = [link] { caf::anon_send(link, connection_lost{}); }};
}

}  // namespace dsec::actors

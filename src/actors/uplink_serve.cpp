// What a coordinator asks a worker for: requests of clients, who knows a key, which leases are
// held.
#include <caf/send.hpp>
#include <span>
#include <utility>

#include "actors/peer_frames.hpp"
#include "actors/replies.hpp"
#include "actors/uplink.hpp"
#include "proto/text.hpp"

namespace dsec::actors {

using base::errc;
using body = proto::PeerMessage::Body;

namespace {

/// Tells the coordinator when nobody holds a large request any more: on whatever thread that is.
struct taken_notice {
  std::weak_ptr<net::ws_session> link;
  std::uint64_t call_id;
  taken_notice(std::weak_ptr<net::ws_session> l, std::uint64_t id)
      : link(std::move(l)), call_id(id) {}
  ~taken_notice() {
    if (const auto open = link.lock()) open->send(taken_frame(call_id));
  }
  taken_notice(const taken_notice&) = delete;
  taken_notice& operator=(const taken_notice&) = delete;
};

}  // namespace

base::result<void> uplink_state::serve(proto::PeerMessage::Reader message) {
  const auto b = message.getBody();
  switch (b.which()) {
    case body::REQUEST:
      return on_request(b.getRequest());
    case body::OPEN_CHANNEL:
      open_channel(b.getOpenChannel());
      return {};
    case body::CLOSE_CHANNEL: {
      auto closed = channels.extract(b.getCloseChannel());
      if (closed) closed.mapped().session->cut();
      return {};
    }
    case body::LEASES:
      on_leases(read_leases(b.getLeases()));
      return {};
    case body::FIND_KEY:
      on_find_key(b.getFindKey());
      return {};
    default:
      return base::fail(errc::protocol, "a message that no coordinator sends");
  }
}

void uplink_state::open_channel(proto::OpenChannel::Reader opened) {
  const auto id = opened.getChannel();
  const auto gateway = args.gateway->get();
  if (!gateway) return session->send(channel_closed_frame(id));
  auto setup = setup_of(gateway, args.env->config.node.name, args.env->leases, args.env->metrics,
                        *args.env->live);
  auto relay = std::make_shared<relay_session>(session, id);
  auto from = std::make_shared<const caller>(read_channel(opened));
  auto connection =
      open_relayed_connection(self->system(), std::move(setup), relay, std::move(from));
  channels.insert_or_assign(id, channel{std::move(relay), std::move(connection)});
}

base::result<void> uplink_state::on_request(proto::PeerRequest::Reader request) {
  const auto data = request.getRequest();
  DSEC_TRY(auto frame,
           proto::frame::from_bytes(std::as_bytes(std::span(data.begin(), data.size()))));
  const auto is_create = proto::view<proto::Request>(frame).read(
      [](proto::Request::Reader r) { return r.getBody().isCreateSandbox(); });
  auto as = read_relayed(request);
  if (is_create && *is_create) as.arrival = std::make_shared<const arrival>(creates);
  if (request.getSayTaken())
    frame = frame.with(std::make_shared<const taken_notice>(session, as.id));
  const auto it = channels.find(request.getChannel());
  if (it == channels.end()) {
    session->send(relayed_reply_frame(
        as.id,
        error_reply(as.id, {errc::unavailable, "this part of dsecd is restarting; try again", 0})));
    return {};
  }
  caf::anon_send(it->second.connection, frame_arrived{std::move(frame), std::move(as)});
  return {};
}

void uplink_state::on_find_key(proto::PeerKey::Reader asked) {
  const auto id = asked.getCallId();
  self->request(edge, caf::infinite,
                find_key{proto::text_of(asked.getPrincipal()), proto::text_of(asked.getKey())})
      .then(
          [this, id, n = link](const found_key& found) {
            if (n == link && session) session->send(found_key_frame(id, found.state));
          },
          // What cannot be said must not be taken for "no": the coordinator asks the next link.
          [this, n = link](caf::error&) {
            if (n == link) on_lost();
          });
}

void uplink_state::on_leases(const std::vector<lease_changed>& changes) {
  const auto from = args.coordinator.text();
  for (const auto& c : changes) {
    c.held ? args.leases->hold(from, c.principal, c.what)
           : args.leases->release(from, c.principal, c.what);
  }
}

void uplink_state::on_room() {
  for (const auto& [id, c] : channels) c.session->room();
}

void uplink_state::cut_channels() {
  for (const auto& [id, c] : std::exchange(channels, {})) c.session->cut();
}

}  // namespace dsec::actors

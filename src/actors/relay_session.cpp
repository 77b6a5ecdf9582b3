#include "actors/relay_session.hpp"

#include <caf/send.hpp>

#include "actors/peer_frames.hpp"

namespace dsec::actors {

void relay_session::send(proto::frame f) {
  std::uint64_t id = 0;
  const auto ok =
      proto::view<proto::Reply>(f).read([&](proto::Reply::Reader r) { id = r.getId(); });
  if (ok && !closed_) link_->send(relayed_reply_frame(id, f));
}

bool relay_session::queued_at_most(std::size_t) {
  // Before the question: room may come right after it.
  waits_ = true;
  if (!link_->queued_at_most(queue_level)) return false;
  waits_ = false;
  return true;
}

void relay_session::room() {
  if (waits_.exchange(false)) caf::anon_send(connection_, room_made{});
}

void relay_session::cut() {
  if (!closed_.exchange(true)) caf::anon_send(connection_, connection_lost{});
}

/// The connection's actor waits for its end, as from a socket.
void relay_session::close(std::string) {
  if (closed_.exchange(true)) return;
  link_->send(channel_closed_frame(channel_));
  if (connection_) caf::anon_send(connection_, connection_lost{});
}

}  // namespace dsec::actors

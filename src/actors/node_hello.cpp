// The handshake of a link, as the coordinator sees it: hello, our challenge and proof, theirs, then
// the cluster's word. Whoever fails is told why, and why is in the log.
#include <utility>

#include "actors/node.hpp"
#include "actors/peer_frames.hpp"
#include "base/log.hpp"
#include "base/secret.hpp"
#include "base/text.hpp"
#include "proto/text.hpp"

namespace dsec::actors {

using base::errc;

namespace {

constexpr std::size_t longest_logged = 64;

}  // namespace

void node_state::on_handshake(proto::PeerMessage::Reader message) {
  switch (at) {
    case stage::hello:
      return greet(message);
    case stage::proof:
      return check_proof(message);
    default:
      return hang_up({errc::protocol, "a worker spoke before it was welcome", 0});
  }
}

void node_state::greet(proto::PeerMessage::Reader message) {
  auto said = proto::read_hello(message);
  if (!said) return refuse(said.error());
  hello = *std::move(said);
  nonce = proto::peer_nonce();
  at = stage::proof;
  args.session->send(challenge_frame(
      nonce, proto::peer_proof(*args.secret, proto::peer_side::coordinator, hello, nonce)));
}

void node_state::check_proof(proto::PeerMessage::Reader message) {
  const auto body = message.getBody();
  if (!body.isProof()) return refuse({errc::protocol, "a worker that proves nothing", 0});
  const auto expected = proto::peer_proof(*args.secret, proto::peer_side::worker, hello, nonce);
  if (!base::same_secret(proto::text_of(body.getProof()), expected)) {
    return refuse({errc::unauthenticated,
                   "worker '" + hello.edge +
                       "' does not know this coordinator's secret; give both the same file as "
                       "peer.secret_file",
                   0});
  }
  at = stage::joining;
  args.session->trust();
  self->request(args.cluster, caf::infinite,
                node_joins{hello.edge, hello.node_id, node_actor{node_self{self}}})
      .then([this](const node_welcome& w) { w.refused ? refuse(*w.refused) : welcome(w); },
            [this](caf::error&) {
              refuse({errc::unavailable, "this part of dsecd is restarting; try again", 0});
            });
}

void node_state::welcome(const node_welcome& w) {
  if (at != stage::joining) return;
  at = stage::up;
  args.session->send(welcome_frame());
  std::vector<lease_changed> held;
  held.reserve(w.leases.size());
  for (const auto& [principal, what] : w.leases) held.push_back({principal, what, true});
  if (!held.empty()) args.session->send(leases_frame(held));
  base::log::info("worker_connected", {{"edge", hello.edge},
                                       {"peer", args.peer},
                                       {"program", base::shown(hello.program, longest_logged)}});
}

void node_state::refuse(const base::error& why) {
  if (at == stage::closing) return;
  base::log::warn("worker_refused", {{"peer", args.peer},
                                     {"edge", base::shown(hello.edge, longest_logged)},
                                     {"code", base::to_string(why.code)},
                                     {"why", why.message}});
  args.session->send(refused_frame(why));
  at = stage::closing;
  args.session->close(why.message);
}

}  // namespace dsec::actors

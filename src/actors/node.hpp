// A worker, as its coordinator sees it: one actor per link that a worker has opened. It answers for
// all sandboxes of that worker: what it is asked goes over the link as it is, and what comes back
// is the answer. Proves first that both sides know the shared secret, and joins the cluster only
// then. When the link is lost it ends, and with it the answers that are due: whoever waits for one
// sees that like the end of any actor.
//
// A client's connection is a channel on the link, opened by its first request to this worker. Large
// requests and replies under way are bounded, by principal (link_share.hpp): further large ones
// wait here, and hold up no small ones. A large request is under way, and counts as its client's,
// until the worker has taken it, however long its command goes on; what its reply may have until it
// is answered. Runs pooled, never blocks.
//
// node.cpp        requests and answers
// node_hello.cpp  who the worker is
#pragma once

#include <caf/typed_event_based_actor.hpp>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>

#include "actors/alarm.hpp"
#include "actors/cluster_interfaces.hpp"
#include "actors/link_share.hpp"
#include "actors/waiter.hpp"
#include "proto/peer.hpp"

namespace dsec::actors {

using node_self = node_actor::extend<caf::reacts_to<alarm_rang>>;

struct node_args {
  std::shared_ptr<net::ws_session> session;
  std::string peer;  // address of the worker
  std::shared_ptr<const std::string> secret;
  cluster_actor cluster;
};

struct node_state {
  static constexpr const char* name = "node";

  static constexpr std::chrono::seconds hello_patience{10};
  /// Messages of the worker that are read before one is dealt with.
  static constexpr std::uint32_t read_ahead = 256;
  /// Requests over this size, and replies that may be, count as large.
  static constexpr std::size_t large = 64U << 10U;
  /// No large request is sent while more than this waits for the socket.
  static constexpr std::size_t queue_level = 16U << 20U;

  enum class stage : std::uint8_t { hello, proof, joining, up, closing };
  struct channel {
    std::uint64_t id = 0;
    std::weak_ptr<const caller> from;
  };
  struct pending {
    reply_promise promise;
    call request;  // with its frame until it was sent, or taken if it is large
    std::uint64_t channel = 0;
    std::size_t bytes = 0;   // of a request that is large and not taken
    std::size_t weight = 0;  // what it may have under way on the link; 0: it is small
    bool sent = false;
  };

  node_self::pointer self;
  node_args args;
  stage at = stage::hello;
  time_point hello_until;
  proto::peer_hello hello;
  std::string nonce;

  std::uint64_t last_id = 0;  // of calls and channels
  std::map<const caller*, channel> channels;
  std::unordered_map<std::uint64_t, pending> calls;
  std::unordered_map<std::uint64_t, caf::typed_response_promise<found_key>> key_calls;
  /// Large requests that the worker has not taken, though nobody waits for their answers any more:
  /// who sent them, and their bytes.
  std::unordered_map<std::uint64_t, std::pair<std::string, std::size_t>> untaken;
  link_share share;          // of the large ones
  std::uint64_t unsent = 0;  // creates that never left here
  alarm deadlines;

  explicit node_state(node_self::pointer s) : self(s) {}
  ~node_state();

  void begin(node_args a);
  caf::result<reply> on_call(const call& c);
  caf::result<found_key> on_find_key(const find_key& m);
  void on_abandoned(const creates_abandoned& m);
  void on_lease(const lease_changed& m);
  void on_frame(const frame_arrived& m);
  void on_room();
  void on_alarm(const alarm_rang& rang);
  void hang_up(const base::error& why);

  // node_hello.cpp
  void on_handshake(proto::PeerMessage::Reader message);

 private:
  [[nodiscard]] time_point now() const { return self->clock().now(); }
  void greet(proto::PeerMessage::Reader message);
  void check_proof(proto::PeerMessage::Reader message);
  void welcome(const node_welcome& w);
  void refuse(const base::error& why);

  base::result<void> on_message(proto::PeerMessage::Reader message);
  base::result<void> on_reply(proto::PeerReply::Reader answer);
  void on_taken(std::uint64_t call_id);
  void end_channel(std::uint64_t id);
  std::uint64_t channel_for(const std::shared_ptr<const caller>& from);
  void forget_gone_channels();
  void send(std::uint64_t id, pending& p);
  void let_go_held();
  pending take(std::unordered_map<std::uint64_t, pending>::iterator it);
};

node_self::behavior_type linked_node(node_self::stateful_pointer<node_state> self, node_args args);

/// The listener's `peer_opened` callback: an actor for the link. Any thread.
net::session_handler open_node(caf::actor_system& system, node_args args);

}  // namespace dsec::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::node_args)

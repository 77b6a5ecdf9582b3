// A worker's end of its link to one coordinator: opens it, and again when it is lost, proves that
// both sides know the shared secret, says every second how full the worker is, and serves what
// comes. A client's connection to the coordinator has a ws_conn of its own here: what it asks is
// found, waited for and answered as what a client of this process asks. Leases that the coordinator
// says are held are held here; when the link is lost they are kept for a while, so that a
// coordinator that is started again ends no client's sandboxes. Runs pooled, never blocks.
//
// uplink.cpp        the link: opening, handshake, reports
// uplink_serve.cpp  what comes over it
#pragma once

#include <caf/typed_event_based_actor.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/cluster_interfaces.hpp"
#include "actors/gateway.hpp"
#include "actors/lease_table.hpp"
#include "actors/relay_session.hpp"
#include "actors/worker.hpp"
#include "net/peer_connector.hpp"
#include "proto/peer.hpp"

namespace dsec::actors {

// To oneself. `link` counts the tries: what comes from an earlier one is ignored.
struct link_opened {
  std::uint64_t link = 0;
  std::shared_ptr<net::ws_session> session;
};
struct link_failed {
  std::uint64_t link = 0;
  base::error why;
};
struct link_spoke {
  std::uint64_t link = 0;
  proto::frame frame;
};
struct link_room {
  std::uint64_t link = 0;
};
struct link_lost {
  std::uint64_t link = 0;
};
struct dial_due {};
struct report_due {
  std::uint64_t link = 0;
};
/// What the copy pool has seen for a report.
struct worker_seen {
  std::uint64_t link = 0;
  std::optional<memory_reading> memory;
  std::string unhealthy;
  std::optional<std::vector<std::string>> images;
};

using uplink_self = uplink_actor::extend<caf::reacts_to<link_opened>,  //
                                         caf::reacts_to<link_failed>,  //
                                         caf::reacts_to<link_spoke>,   //
                                         caf::reacts_to<link_room>,    //
                                         caf::reacts_to<link_lost>,    //
                                         caf::reacts_to<dial_due>,     //
                                         caf::reacts_to<report_due>,   //
                                         caf::reacts_to<worker_seen>>;

struct uplink_args {
  worker_ptr env;
  std::shared_ptr<gateway_slot> gateway;
  std::shared_ptr<net::peer_connector> connector;
  net::peer_address coordinator;
  std::shared_ptr<const std::string> secret;
  std::string node_id;
  std::string program;
};

/// How long to wait before the n-th try in a row; `chance` in [0, 1). Pure.
std::chrono::milliseconds back_off(unsigned n, double chance);

struct uplink_state {
  static constexpr const char* name = "uplink";

  static constexpr std::chrono::milliseconds report_period{1000};
  static constexpr std::chrono::milliseconds after_refusal{5000};  // nobody mends that in a second
  /// Leases of a link that was lost are held until so long after the next one stands, for clients
  /// to come back to the coordinator; and if none ever stands, so long after the loss.
  static constexpr std::chrono::seconds lease_grace{30};
  static constexpr std::chrono::seconds longest_lease_grace{300};
  static constexpr std::uint32_t read_ahead = 256;

  enum class stage : std::uint8_t { apart, dialing, hello, proven, up };
  struct channel {
    std::shared_ptr<relay_session> session;
    ws_conn_actor connection;
  };
  using lease_key = std::pair<std::string, std::string>;  // principal and id
  using holders = std::map<lease_key, lease_table::holder>;
  struct kept_leases {
    time_point until;
    holders leases;
  };

  uplink_self::pointer self;
  uplink_args args;
  edge_actor edge;
  stage at = stage::apart;
  std::uint64_t link = 0;  // the present one
  unsigned tries = 0;      // in a row
  std::string last_trouble;
  std::shared_ptr<net::ws_session> session;
  proto::peer_hello hello;
  std::unordered_map<std::uint64_t, channel> channels;
  std::uint64_t creates = 0;          // that came over this link
  std::uint64_t creates_counted = 0;  // when the report was begun
  std::optional<std::vector<std::string>> images_told;
  holders leases;
  std::vector<kept_leases> kept;
  bool has_been_up = false;
  std::minstd_rand dice{std::random_device{}()};

  explicit uplink_state(uplink_self::pointer s) : self(s) {}
  ~uplink_state();

  // uplink.cpp
  void begin(uplink_args a, edge_actor local);
  void dial();
  void on_opened(const link_opened& m);
  void on_failed(const link_failed& m);
  void on_lost(std::optional<std::chrono::milliseconds> pause = {});
  void on_report_due();
  void on_seen(const worker_seen& m);
  void on_spoke(const link_spoke& m);

  // uplink_serve.cpp
  base::result<void> serve(proto::PeerMessage::Reader message);
  void on_room();
  void cut_channels();
  void keep_leases();
  void let_go_of_old_leases();

 private:
  [[nodiscard]] time_point now() const { return self->clock().now(); }
  [[nodiscard]] std::string subject() const;  // on the health board
  void dial_in(std::chrono::milliseconds delay);
  void trouble(const base::error& why, bool refused);
  base::result<void> on_message(proto::PeerMessage::Reader message);
  base::result<void> on_challenge(proto::PeerMessage::Body::Reader body);
  base::result<void> on_verdict(proto::PeerMessage::Body::Reader body);
  base::result<void> on_request(proto::PeerRequest::Reader request);
  void open_channel(proto::OpenChannel::Reader opened);
  void on_find_key(proto::PeerKey::Reader asked);
  void on_leases(const std::vector<lease_changed>& changes);
};

uplink_self::behavior_type uplink(uplink_self::stateful_pointer<uplink_state> self,
                                  uplink_args args, edge_actor local);

}  // namespace dsec::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::link_opened)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::link_failed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::link_spoke)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::link_room)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::link_lost)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::dial_due)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::report_due)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::worker_seen)

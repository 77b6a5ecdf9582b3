// A worker's end of its link to one coordinator: opens it, and again when it is lost, proves that
// both sides know the shared secret, says every second how full the worker is, and serves what
// comes. A client's connection to the coordinator has a ws_conn of its own here: what it asks is
// found, waited for and answered as what a client of this process asks. Leases that the coordinator
// says are held are held here (link_leases.hpp). Runs pooled, never blocks.
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
#include "actors/link_leases.hpp"
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
  std::shared_ptr<link_leases> leases;  // of all uplinks
};

/// How long to wait before the n-th try in a row; `chance` in [0, 1). Pure.
std::chrono::milliseconds back_off(unsigned n, double chance);

struct uplink_state {
  static constexpr const char* name = "uplink";

  static constexpr std::chrono::milliseconds report_period{1000};
  /// What a report says of host and images may be so old before the worker counts as unhealthy.
  static constexpr std::chrono::seconds look_patience{5};
  static constexpr std::chrono::milliseconds after_refusal{5000};  // nobody mends that in a second
  static constexpr std::uint32_t read_ahead = 256;

  enum class stage : std::uint8_t { apart, dialing, hello, proven, up };
  struct channel {
    std::shared_ptr<relay_session> session;
    ws_conn_actor connection;
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
  std::shared_ptr<arrivals> creates;  // of this link
  std::optional<worker_seen> seen;    // the last time, over this link
  time_point seen_at;                 // at first, since when it stands
  bool looking = false;               // the copy pool has been asked to look again
  std::optional<std::vector<std::string>> images_told;
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
  void look();
  void report();
  void on_seen(const worker_seen& m);
  void on_spoke(const link_spoke& m);

  // uplink_serve.cpp
  base::result<void> serve(proto::PeerMessage::Reader message);
  void on_room();
  void cut_channels();

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

// The actors between a coordinator and its workers, a comment per message; as interfaces.hpp, whose
// messages they speak with everybody else.
//
//   coordinator: gateway ──> cluster ──> node (one per link) ══ws══ uplink ──> ws_conn, edge :worker
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/interfaces.hpp"
#include "net/listener.hpp"

namespace dsec::actors {

/// A lease was taken by a client's first connection, or let go by its last.
struct lease_changed {
  std::string principal;
  lease what;
  bool held = false;
};

/// What a worker says of itself, at once and every second.
struct node_report {
  edge_load load;
  std::uint64_t creates = 0;                       // sent to it and counted in `load`, or over
  std::string unhealthy;                           // why; empty: healthy
  std::optional<std::vector<std::string>> images;  // all it has, when they have changed
};

// ---- node: one per link of a coordinator; answers for the sandboxes of that worker
// ----------------------------------------------------------------------------------

/// Another link of the same worker takes this one's place.
struct close_link {
  std::string reason;
};
using node_actor = callee::extend<caf::replies_to<find_key>::with<found_key>,  //
                                  caf::reacts_to<creates_abandoned>,           //
                                  caf::reacts_to<lease_changed>,               //
                                  caf::reacts_to<close_link>,                  //
                                  caf::reacts_to<frame_arrived>,               //
                                  caf::reacts_to<frame_malformed>,             //
                                  caf::reacts_to<room_made>,                   //
                                  caf::reacts_to<connection_lost>>;

// ---- cluster: root of the workers of a coordinator
// ----------------------------------------------------------------------------------

/// A worker has proven that it knows the secret.
struct node_joins {
  std::string edge;
  std::string node_id;
  node_actor node;
};
struct node_welcome {
  std::optional<base::error> refused;                 // another worker of this name is there
  std::vector<std::pair<std::string, lease>> leases;  // that are held now
};
struct node_reported {
  std::string edge;
  caf::actor_id node = 0;
  node_report report;
};
using cluster_actor = front_actor::extend<caf::replies_to<node_joins>::with<node_welcome>,  //
                                          caf::reacts_to<node_reported>,                    //
                                          caf::reacts_to<lease_changed>>;

// ---- uplink: a worker's end of its link to one coordinator
// ----------------------------------------------------------------------------------

/// The edge of this worker was started, or started again.
struct edge_is {
  edge_actor edge;
};
using uplink_actor = caf::typed_actor<caf::reacts_to<edge_is>>;

}  // namespace dsec::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::lease_changed)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::close_link)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::node_joins)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::node_welcome)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::node_reported)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::edge_is)

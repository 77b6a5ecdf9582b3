// Root actor of the coordinator side: hands requests to the edge of this process, or on a
// coordinator to the cluster of its workers, and supervises the connections. When it dies the root
// starts another; the connections of the dead one answer `unavailable` and close, clients come back
// on a new one. Runs pooled, never blocks.
#pragma once

#include <caf/typed_event_based_actor.hpp>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "actors/interfaces.hpp"
#include "actors/live_settings.hpp"
#include "actors/relay_session.hpp"
#include "actors/ws_conn.hpp"
#include "net/listener.hpp"

namespace dsec::actors {

struct gateway_state {
  static constexpr const char* name = "gateway";

  gateway_actor::pointer self;
  std::string edge_name;  // the only one there is; empty on a coordinator, whose cluster knows them
  front_actor front;
  std::map<ws_conn_actor, std::string> connections;  // with their keys' ids
  std::vector<caf::typed_response_promise<everything_closed>> closers;

  explicit gateway_state(gateway_actor::pointer s) : self(s) {}
  ~gateway_state();

  caf::result<reply> on_call(const call& c);
  caf::result<found_sandbox> on_find(const find_sandbox& m);
  caf::result<everything_closed> on_close();
  void on_opened(const connection_opened& m);
  void on_revoked(const keys_revoked& m);
  void on_down(const caf::down_msg& m);
  void tell_children_to_exit();
};

gateway_actor::behavior_type gateway(gateway_actor::stateful_pointer<gateway_state> self,
                                     std::string edge_name, front_actor front);

/// Where the listener's threads find the actor that lives now. Thread-safe.
template <class Actor>
class actor_slot {
 public:
  void set(Actor a) {
    const std::scoped_lock lock(mutex_);
    actor_ = std::move(a);
  }
  [[nodiscard]] Actor get() const {
    const std::scoped_lock lock(mutex_);
    return actor_;
  }

 private:
  mutable std::mutex mutex_;
  Actor actor_;
};
using gateway_slot = actor_slot<gateway_actor>;

connection_setup setup_of(gateway_actor gateway, std::string edge_name,
                          std::shared_ptr<lease_table> leases,
                          std::shared_ptr<node_metrics> metrics, const live_settings& live);

/// The listener's `opened` callback: a connection actor for the session, known to the gateway that
/// `to` names. Any thread.
net::session_handler open_connection(caf::actor_system& system, connection_setup to,
                                     std::shared_ptr<net::ws_session> session,
                                     net::connection_info info);

/// The same for a client whose connection is a coordinator's: it has said hello there.
ws_conn_actor open_relayed_connection(caf::actor_system& system, connection_setup to,
                                      const std::shared_ptr<relay_session>& session,
                                      std::shared_ptr<const caller> from);

}  // namespace dsec::actors

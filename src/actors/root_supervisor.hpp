// Starts the root actors of a node and starts them again when they die, within a budget; beyond it
// the node is not worth running and `give_up` is called (it ends the process, and whoever runs
// dsecd starts it anew). Every role has a gateway and a watchdog; --role=all and worker an edge, a
// worker an uplink per coordinator as well; a coordinator a cluster instead. Owns the table of
// sandboxes, so that the edge's death costs no sandbox.
#pragma once

#include <caf/typed_event_based_actor.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/cluster.hpp"
#include "actors/edge_table.hpp"
#include "actors/gateway.hpp"
#include "actors/interfaces.hpp"
#include "actors/restart_budget.hpp"
#include "actors/uplink.hpp"
#include "actors/watchdog.hpp"
#include "actors/worker.hpp"

namespace dsec::actors {

using cluster_slot = actor_slot<cluster_actor>;

struct root_args {
  worker_ptr env;  // none on a coordinator
  std::shared_ptr<edge_table> table;
  std::shared_ptr<gateway_slot> slot;  // told which gateway lives
  std::function<void(const std::string& why)> give_up;
  std::vector<uplink_args> uplinks{};  // of a worker
  coordinator_ptr coordinator{};       // of a coordinator
  std::shared_ptr<cluster_slot> cluster{};

  [[nodiscard]] const std::shared_ptr<health_board>& health() const {
    return env ? env->health : coordinator->health;
  }
  [[nodiscard]] const std::shared_ptr<node_metrics>& metrics() const {
    return env ? env->metrics : coordinator->metrics;
  }
};

struct root_state {
  static constexpr const char* name = "root_supervisor";

  root_actor::pointer self;
  root_args args;
  edge_actor edge_now;
  cluster_actor cluster_now;
  std::vector<uplink_actor> uplinks_now;
  gateway_actor gateway_now;
  watchdog_actor watchdog_now;
  restart_budget restarts;

  explicit root_state(root_actor::pointer s) : self(s) {}
  void begin(root_args a);
  void on_down(const caf::down_msg& m);
  void tell_children_to_exit();

 private:
  void start_edge();
  void start_cluster();
  void start_uplink(std::size_t i);
  void start_gateway();
  void start_watchdog();
  [[nodiscard]] front_actor front() const;
  /// Which child that was; `really`: another is started in its place.
  const char* restart(const caf::actor_addr& dead, bool really);
};

root_actor::behavior_type root_supervisor(root_actor::stateful_pointer<root_state> self,
                                          root_args args);

}  // namespace dsec::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::root_args)

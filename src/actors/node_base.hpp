// What nodes of every role have in common: an actor system with its root, the gateway's door, and
// the order in which they come and go. Internal to src/actors; main thread, but open_client().
#pragma once

#include <caf/actor_system.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/gateway.hpp"
#include "actors/health.hpp"
#include "actors/live_settings.hpp"
#include "actors/node_metrics.hpp"
#include "actors/root_supervisor.hpp"
#include "actors/runtime.hpp"
#include "actors/system.hpp"
#include "actors/terminator.hpp"
#include "net/listener.hpp"
#include "net/peer_connector.hpp"

namespace dsec::actors {

class node_base : public node {
 public:
  node_base(const node_base&) = delete;
  node_base& operator=(const node_base&) = delete;

  [[nodiscard]] std::uint16_t port() const override { return listener_->port(); }
  void keys_revoked(const std::vector<std::string>& ids) override;
  base::result<std::function<void()>> load_certificate() override;
  void apply(const base::config& config) override;

 protected:
  /// `give_up`: what node_deps says; its default when it is empty.
  node_base(const base::config& config, std::shared_ptr<auth::gate> gate,
            std::function<void(const std::string& why)> give_up);

  /// The gateway is there when this returns.
  void spawn_root(root_args args);
  base::result<void> listen(net::listener_callbacks callbacks,
                            const std::filesystem::path& peer_ca = {});
  /// The listener's `opened` of clients. Any thread.
  net::session_handler open_client(const std::string& edge_name,
                                   const std::shared_ptr<lease_table>& leases,
                                   const std::shared_ptr<net::ws_session>& session,
                                   net::connection_info info);
  /// Ends connections and actors, then does the rest. Gives up when all of it takes longer than
  /// `grace`. Nothing happens when no root was spawned, or a second time.
  void end(std::chrono::milliseconds grace, shut_down how, const std::function<void()>& rest);

  const base::config config_;  // as it was at the start
  const std::shared_ptr<live_settings> live_ = std::make_shared<live_settings>();
  const std::shared_ptr<auth::gate> gate_;
  const std::shared_ptr<health_board> health_ = std::make_shared<health_board>();
  const std::shared_ptr<node_metrics> metrics_ = std::make_shared<node_metrics>();
  const std::shared_ptr<gateway_slot> slot_ = std::make_shared<gateway_slot>();
  std::function<void(const std::string& why)> give_up_;
  runtime_config runtime_;
  std::unique_ptr<caf::actor_system> system_;
  std::shared_ptr<net::peer_connector> connector_;  // of a worker

 private:
  root_actor root_;
  terminator_actor terminator_;
  std::unique_ptr<net::listener> listener_;
};

}  // namespace dsec::actors

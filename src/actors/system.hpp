// A whole node of any role behind one object without CAF in it: what the command line starts and
// stops. start() and stop() block and are for the main thread; signals are the caller's.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/record_store.hpp"
#include "auth/gate.hpp"
#include "backends/backend.hpp"
#include "base/config.hpp"
#include "base/result.hpp"
#include "base/store.hpp"
#include "fs/image_store.hpp"
#include "net/peer_connector.hpp"

namespace dsec::actors {

/// What makes a node a worker of coordinators: it has no clients of its own.
struct worker_links {
  std::vector<net::peer_address> coordinators;
  std::string secret;
  std::string node_id;  // of the state directory
  std::string program;  // release, for their logs
};

struct node_deps {
  std::shared_ptr<backends::backend> backend;
  fs::image_store images;
  std::unique_ptr<base::store> store;  // opened with worker_migrations(), durability::process
  std::shared_ptr<auth::gate> gate;    // who may come in
  /// The node cannot go on, or did not stop in time. The default logs and ends the process with
  /// status 70.
  std::function<void(const std::string& why)> give_up;
  std::optional<worker_links> links{};
};

/// Of a coordinator: it has no sandboxes of its own.
struct coordinator_deps {
  std::shared_ptr<auth::gate> gate;      // as above
  std::string secret;                    // that its workers must know
  std::vector<std::string> known_edges;  // of earlier coordinators over this state
  std::function<base::result<void>(const std::string& text)> save_edges;
  std::function<void(const std::string& why)> give_up;  // as above
};

class node {
 public:
  virtual ~node() = default;
  /// Where the gateway listens.
  [[nodiscard]] virtual std::uint16_t port() const = 0;
  /// Closes the connections that came in with these keys; the gate must not hold them any more.
  virtual void keys_revoked(const std::vector<std::string>& ids) = 0;
  /// Reads certificates, keys and authorities again, those of links as well; new connections and
  /// links get them once what this returns was called.
  virtual base::result<std::function<void()>> load_certificate() = 0;
  /// Takes over the keys of the configuration that are reloadable (base::with_reloadable).
  virtual void apply(const base::config& config) = 0;
  /// What the host lacks now of what a start of a sandbox needs, for /healthz; empty: nothing.
  virtual void report_host(const std::string& missing) = 0;
  /// Ends all sandboxes, answers and closes all connections, ends all threads. `give_up` is called
  /// when that takes longer than `grace`.
  virtual void stop(std::chrono::milliseconds grace) = 0;
  /// The same, but sandboxes and their commands run on: the next node over this state takes them
  /// over. The backend must be one that can leave (backend::leave), and is not used afterwards.
  virtual void leave(std::chrono::milliseconds grace) = 0;
};

/// Recovers what the store knows, starts everything, and listens. Block signals before: all threads
/// inherit the mask of the caller.
base::result<std::unique_ptr<node>> start_node(const base::config& config, node_deps deps);

/// A node without backend and store: workers come to it. Otherwise the same.
base::result<std::unique_ptr<node>> start_coordinator(const base::config& config,
                                                      coordinator_deps deps);

}  // namespace dsec::actors

// What all sandboxes of one container backend share: the worker's side of groups, launcher, layers,
// slots, trash and the thread that reads channels. Owned by the backend; instances refer to it and
// must be gone before it.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/container/cgroups.hpp"
#include "backends/container/housekeeper.hpp"
#include "backends/container/inheritance.hpp"
#include "backends/container/launcher.hpp"
#include "backends/container/layer_cache.hpp"
#include "backends/container/slot_pool.hpp"
#include "backends/container/spool_watch.hpp"
#include "backends/container/trash.hpp"
#include "backends/sys/event_loop.hpp"
#include "base/config.hpp"
#include "base/paths.hpp"

namespace dsec::container {

struct sandbox_parts;

/// The sandboxes that exist, for whatever concerns them by name or all of them. Thread-safe.
class sandbox_registry {
 public:
  base::result<void> add(const std::shared_ptr<sandbox_parts>& parts);
  /// Nothing happens when another sandbox of that name is registered.
  void remove(const sandbox_parts& parts);
  [[nodiscard]] std::shared_ptr<sandbox_parts> find(const std::string& id) const;
  [[nodiscard]] std::vector<std::shared_ptr<sandbox_parts>> all() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::string, std::weak_ptr<sandbox_parts>> parts_;
};

/// Names of failure points: the sandbox of a probe has its own, so that those of a node do not hit
/// it.
struct failure_areas {
  std::string start = "container.start", stop = "container.stop";
};

struct sandbox_host {
  sandbox_host(base::paths p, const base::node_config& node, const backends::limits& defaults,
               cgroup_tree tree, std::unique_ptr<sys::event_loop> events,
               std::unique_ptr<trash> bin);

  base::paths paths;
  cgroup_tree groups;
  std::unique_ptr<sys::event_loop> loop;
  spool_watch outputs;
  sandbox_registry sandboxes;
  inheritance left;  // what an earlier dsecd left
  std::unique_ptr<container::trash> trash;
  container::launcher launcher;
  layer_cache layers;
  slot_pool slots;
  failure_areas areas;
  std::atomic<std::uint64_t> launcher_deaths{0}, launcher_restarts{0};
  std::atomic<bool> closing{false};
  std::atomic<bool> leaving{false};      // instances that are destroyed do not stop their sandboxes
  housekeeper chores{"dsec-chores", 0};  // last: its jobs use all of the above
  housekeeper relaunching{"dsec-launcher", 0};  // likewise; no chore holds up a new launcher
};

}  // namespace dsec::container

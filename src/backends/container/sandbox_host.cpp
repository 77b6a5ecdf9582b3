#include "backends/container/sandbox_host.hpp"

#include <algorithm>
#include <chrono>

#include "backends/container/sandbox_parts.hpp"
#include "base/log.hpp"

namespace dsec::container {
namespace {

/// Layers kept attached although nobody uses them; a mount costs some kilobytes.
constexpr std::size_t max_unused_layers = 256;

constexpr std::chrono::milliseconds first_retry{200}, longest_retry{30'000};

/// Also when nobody asks for one, and again when that one dies at its start: as long as there is
/// none dsecd alone holds the sandboxes, and they would end with it.
void start_another(sandbox_host& host, std::chrono::milliseconds retry) {
  if (host.closing) return;
  const auto started = host.launcher.get();
  if (started || started.error().code == base::errc::cancelled) return;
  base::log::error("launcher_not_restarted", {{"error", started.error().to_string()}});
  host.relaunching.post_later(
      retry, [&host, retry] { start_another(host, std::min(2 * retry, longest_retry)); });
}

/// What it does not hold would end with dsecd.
void adopt_later(sandbox_host& host, std::chrono::milliseconds wait) {
  host.relaunching.post_later(wait, [&host, wait] {
    if (host.closing) return;
    if (host.launcher.adopt_again())
      base::log::info("sandboxes_adopted", {});
    else
      adopt_later(host, std::min(2 * wait, longest_retry));
  });
}

launcher::hooks hooks_for(sandbox_host& host) {
  launcher::hooks h;
  h.events.exited = [&host](const std::string& id, int status) {
    if (const auto parts = host.sandboxes.find(id)) return parts->note_exit(status);
    host.left.note_exit(id, status);
  };
  h.events.down = [&host] {
    if (host.closing) return;
    ++host.launcher_deaths;
    base::log::warn("launcher_died", {});
    host.relaunching.post([&host] { start_another(host, first_retry); });
  };
  h.incomplete = [&host] { adopt_later(host, first_retry); };
  h.replaced = [&host] { ++host.launcher_restarts; };
  h.survivors = [&host] {
    return host.left.survivors([&host] {
      std::vector<survivor> all;
      for (const auto& parts : host.sandboxes.all()) {
        if (auto one = parts->describe()) all.push_back(std::move(*one));
      }
      return all;
    });
  };
  return h;
}

}  // namespace

sandbox_host::sandbox_host(base::paths p, const base::node_config& node,
                           const backends::limits& defaults, cgroup_tree tree,
                           std::unique_ptr<sys::event_loop> events,
                           std::unique_ptr<container::trash> bin)
    : paths(std::move(p)),
      groups(std::move(tree)),
      loop(std::move(events)),
      outputs(*loop),
      trash(std::move(bin)),
      launcher(paths, *loop, hooks_for(*this)),
      layers(launcher, max_unused_layers),
      slots(groups, launcher, *trash, paths, node, defaults) {}

base::result<void> sandbox_registry::add(const std::shared_ptr<sandbox_parts>& parts) {
  const std::scoped_lock lock(mutex_);
  auto& known = parts_[parts->spec.sandbox_id];
  if (!known.expired())
    return base::fail(base::errc::already_exists,
                      "sandbox '" + parts->spec.sandbox_id + "' exists already");
  known = parts;
  return {};
}

void sandbox_registry::remove(const sandbox_parts& parts) {
  const std::scoped_lock lock(mutex_);
  const auto found = parts_.find(parts.spec.sandbox_id);
  if (found == parts_.end()) return;
  const auto registered = found->second.lock();
  if (!registered || registered.get() == &parts) parts_.erase(found);
}

std::shared_ptr<sandbox_parts> sandbox_registry::find(const std::string& id) const {
  const std::scoped_lock lock(mutex_);
  const auto found = parts_.find(id);
  return found == parts_.end() ? nullptr : found->second.lock();
}

std::vector<std::shared_ptr<sandbox_parts>> sandbox_registry::all() const {
  const std::scoped_lock lock(mutex_);
  std::vector<std::shared_ptr<sandbox_parts>> found;
  for (const auto& [id, weak] : parts_) {
    if (auto parts = weak.lock()) found.push_back(std::move(parts));
  }
  return found;
}

}  // namespace dsec::container

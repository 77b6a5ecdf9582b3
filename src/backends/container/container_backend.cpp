#include "backends/container/container_backend.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "backends/container/container_instance.hpp"
#include "backends/container/home.hpp"
#include "backends/container/probe.hpp"
#include "backends/sys/file.hpp"
#include "backends/sys/mountinfo.hpp"
#include "base/failpoint.hpp"
#include "base/ids.hpp"
#include "base/log.hpp"
#include "base/text.hpp"

namespace dsec::container {
namespace {

using base::errc;
using base::fail;
using base::result;

constexpr auto remove_timeout = std::chrono::seconds(10);
/// For a launcher that does not answer: a disk that comes back does so within this, or not soon.
constexpr auto patience_at_start = std::chrono::seconds(60);

backends::limits default_limits(const base::sandbox_config& c) {
  return {c.cpu_millis, static_cast<std::uint64_t>(c.memory_mb) << 20U, c.pids, c.nofile};
}

result<void> check_id(const backends::start_spec& spec) {
  if (!base::is_valid_id(spec.sandbox_id))
    return fail(errc::invalid_argument,
                "'" + base::shown(spec.sandbox_id, 80) + "' is not a sandbox id");
  return {};
}

result<void> check(const backends::start_spec& spec) {
  DSEC_CHECK(check_id(spec));
  if (spec.layers.empty())
    return fail(errc::invalid_argument, "sandbox '" + spec.sandbox_id + "' has no layers");
  return {};
}

/// One error of both.
result<void> together(const result<void>& one, const result<void>& other) {
  if (one) return other;
  if (other) return one;
  auto both = one.error();
  both.message += "; " + other.error().to_string();
  return fail(std::move(both));
}

/// What a launcher has mounted in its own namespace, as guest/launch.hpp says where. Without an
/// answer they stay attached until it ends.
std::vector<std::string> attached_layers(pid_t launcher) {
  constexpr std::string_view directory = "/layers/";
  std::vector<std::string> names;
  const auto text = sys::read_file("/proc/" + std::to_string(launcher) + "/mountinfo");
  for (const auto& m : sys::parse_mountinfo(text ? *text : "")) {
    if (m.mount_point.starts_with(directory))
      names.push_back(m.mount_point.substr(directory.size()));
  }
  return names;
}

}  // namespace

result<std::unique_ptr<container_backend>> container_backend::make(
    const base::paths& where, const base::node_config& node, const base::sandbox_config& defaults,
    const failure_areas& areas) {
  // One spelling of the path, since groups and launchers are known by it after a restart.
  std::error_code bad;
  const base::paths paths(std::filesystem::weakly_canonical(where.state(), bad));
  DSEC_CHECK(sys::make_directory_at(AT_FDCWD, paths.state(), 0700));
  DSEC_CHECK(make_sandboxes_directory(paths));
  // The groups last: there may be living sandboxes in them, so no failure here may undo them.
  DSEC_TRY(auto bin, trash::open(paths.trash()));
  DSEC_TRY(auto loop, sys::event_loop::start("dsec-channels"));
  DSEC_TRY(auto groups, cgroup_tree::open(node.instance, paths.state()));
  auto host = std::make_unique<sandbox_host>(paths, node, default_limits(defaults),
                                             std::move(groups), std::move(loop), std::move(bin));
  host->areas = areas;
  return std::unique_ptr<container_backend>(new container_backend(std::move(host), node));
}

result<std::unique_ptr<container_backend>> container_backend::open(
    const base::paths& where, const base::node_config& node, const base::sandbox_config& defaults,
    const failure_areas& areas) {
  DSEC_TRY(auto made, make(where, node, defaults, areas));
  DSEC_CHECK(made->take_over());
  DSEC_CHECK(made->host_->launcher.get());
  return made;
}

result<void> container_backend::take_over() {
  DSEC_TRY(auto found, host_->launcher.take_over(patience_at_start));
  DSEC_CHECK(base::failpoint::check("container.recover.listed"));
  inherited_ = found.has_value();
  const bool live = found && std::any_of(found->sandboxes.begin(), found->sandboxes.end(),
                                         [](const auto& s) { return !s.ended; });
  if (found) {
    host_->left.fill(std::move(found->sandboxes));
    host_->launcher.see_held(found->generation);
    host_->layers.inherit(attached_layers(found->pid));
  }
  return host_->groups.claim_ids(
      std::to_string(node_.uid_base) + " " + std::to_string(node_.aether_uid_base), live);
}

result<void> container_backend::end_everything(const base::paths& where,
                                               const base::node_config& node,
                                               const base::sandbox_config& defaults) {
  DSEC_TRY(const auto made, make(where, node, defaults, {}));
  DSEC_CHECK(made->end_by_groups());
  const auto ended = made->end_unrecovered();
  return together(ended, made->close());
}

result<void> container_backend::end_by_groups() {
  const auto launchers = host_->launcher.end_others();
  const auto ended = launchers ? result<void>() : fail(launchers.error());
  DSEC_CHECK(together(ended, host_->groups.clear(sys::after(remove_timeout))));
  inherited_ = false;
  return {};
}

container_backend::~container_backend() {
  if (const auto closed = close(); !closed)
    base::log::error("container_backend_left", {{"error", closed.error().to_string()}});
}

std::vector<backends::probe_item> container_backend::probe() {
  return probe_host(host_->paths.state(), node_);
}

result<std::unique_ptr<backends::instance>> container_backend::start(
    const backends::start_spec& spec, backends::event_sink sink) {
  DSEC_CHECK(check(spec));
  {
    const std::scoped_lock lock(mutex_);
    if (closed_ || host_->closing || host_->leaving)
      return fail(errc::unavailable, "the container backend is closing");
    if (!leftovers_.known())
      return fail(errc::unavailable, "what an earlier run left has not been ended yet; try again");
    ++starting_;
  }
  auto started = container_instance::start(*host_, spec, sink);
  // A launcher that died under the request has been replaced by now, or is when it is next needed.
  if (!started && started.error().code == errc::unavailable)
    started = container_instance::start(*host_, spec, std::move(sink));
  const std::scoped_lock lock(mutex_);
  --starting_;
  idle_.notify_all();
  if (!started) return fail(started.error());
  return std::unique_ptr<backends::instance>(std::move(*started));
}

result<backends::recovered> container_backend::recover(const backends::start_spec& spec,
                                                       backends::event_sink sink) {
  DSEC_CHECK(check_id(spec));
  return container_instance::recover(*host_, spec, std::move(sink));
}

result<void> container_backend::end_unrecovered() {
  return leftovers_.end();
}

void container_backend::leave() {
  host_->leaving = true;
}

void container_backend::refill() {
  if (!leftovers_.known()) return;  // a slot made now would be taken for one that was left
  if (const auto filled = host_->slots.refill(); !filled)
    base::log::warn("slots_not_refilled", {{"error", filled.error().to_string()}});
}

backends::backend_stats container_backend::stats() const {
  return {host_->slots.ready(), host_->launcher_deaths, host_->launcher_restarts};
}

result<void> container_backend::close() {
  std::unique_lock lock(mutex_);
  if (closed_) return {};
  host_->closing = true;
  idle_.wait(lock, [&] { return starting_ == 0; });
  // Before that only what was found can be left; a launcher of our own holds nothing.
  if (leftovers_.known() ? host_->leaving.load() : inherited_) {
    let_go();
    closed_ = true;
    return {};
  }
  if (const auto live = host_->sandboxes.all().size(); live > 0)
    return fail(errc::wrong_phase, std::to_string(live) + " sandboxes are not stopped");
  DSEC_CHECK(remove_all());
  closed_ = true;
  return {};
}

/// Ready slots stay too: the next run ends them.
void container_backend::let_go() {
  host_->leaving = true;
  host_->relaunching.stop();
  host_->chores.stop();
  host_->launcher.leave();
}

result<void> container_backend::remove_all() {
  host_->relaunching.stop();
  host_->chores.stop();
  std::optional<base::error> failed;
  const auto note = [&](const result<void>& outcome) {
    if (outcome) return;
    if (failed)
      failed->message += "; " + outcome.error().to_string();
    else
      failed = {outcome.error().code, "close: " + outcome.error().to_string(), 0};
  };
  note(host_->slots.drain());
  note(leftovers_.end());
  note(host_->layers.detach_unused());
  note(host_->launcher.shutdown());
  note(host_->groups.remove(sys::after(remove_timeout)));
  host_->trash->empty();
  if (failed) return fail(std::move(*failed));
  // The last of all: while it is there, something may be left that is to be ended.
  ::unlink(host_->paths.launcher_socket().c_str());
  return {};
}

}  // namespace dsec::container

#include "backends/container/probe.hpp"

#include <fcntl.h>
#include <linux/sched.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>

#include "backends/container/container_backend.hpp"
#include "backends/container/empty_image.hpp"
#include "backends/container/launcher_search.hpp"
#include "backends/container/trial_slot.hpp"
#include "backends/sys/file.hpp"
#include "backends/sys/waiting_child.hpp"
#include "base/ids.hpp"

namespace dsec::container {
namespace {

using base::errc;
using base::fail;
using base::fail_errno;
using base::result;

constexpr auto timeout = std::chrono::seconds(10);

backends::probe_item item(std::string what, const result<std::string>& found, std::string remedy) {
  if (found) return {std::move(what), true, *found, std::move(remedy)};
  return {std::move(what), false, found.error().sentence(), std::move(remedy)};
}

result<std::string> describe_hierarchies() {
  DSEC_TRY(const auto all, find_hierarchies());
  std::string text = "version 2 at " + all.unified.base().string();
  for (const auto& c : all.unified.controllers) text += " " + c;
  for (const auto& h : all.legacy) {
    text += "; version 1 at " + h.base().string() + ":";
    for (const auto& c : h.controllers) text += " " + c;
  }
  return text;
}

result<std::string> user_namespaces(std::uint32_t first_id) {
  DSEC_CHECK(sys::waiting_child::with_mapped_ids(first_id));
  return "made one and mapped 65536 ids from " + std::to_string(first_id) + " on";
}

result<std::string> limit(const cgroup_tree& tree, slot_groups& slot) {
  DSEC_CHECK(tree.set_limits(slot, {}));
  return std::string("set memory, CPU and process limits on a group");
}

result<std::string> clone_into(slot_groups& slot) {
  DSEC_TRY(const auto child, sys::waiting_child::start(CLONE_INTO_CGROUP, slot.fds.init.get()));
  DSEC_TRY(const auto members, slot.slot.read("init/cgroup.procs"));
  if (members != std::to_string(child.pid()) + "\n")
    return fail(errc::unsupported, "the process cloned into a group is not in it");
  return std::string("cloned a process into a group");
}

result<std::string> kill_group(slot_groups& slot) {
  DSEC_TRY(const auto child, sys::waiting_child::start(CLONE_INTO_CGROUP, slot.fds.init.get()));
  DSEC_CHECK(slot.slot.kill());
  DSEC_CHECK(slot.slot.wait_empty(sys::after(timeout)));
  return std::string("killed a process by its group");
}

struct group_trials {
  result<std::string> limited, cloned_into, killed;
};

group_trials try_groups(const base::node_config& node, const std::filesystem::path& state) {
  group_trials found;
  const auto tried = with_trial_slot(node, state, [&](const cgroup_tree& tree, slot_groups& slot) {
    found = {limit(tree, slot), clone_into(slot), kill_group(slot)};
    return result<std::string>();
  });
  if (tried) return found;
  // It could not be made, or not be removed.
  for (auto* each : {&found.limited, &found.cloned_into, &found.killed}) {
    if (*each) *each = fail(tried.error());
  }
  return found;
}

/// Starts a command and waits for its end.
result<void> run(backends::instance& sandbox, std::condition_variable& changed, std::mutex& mutex,
                 std::optional<result<void>>& outcome, backends::exec_spec spec) {
  outcome.reset();
  DSEC_CHECK(sandbox.exec(std::move(spec)));
  std::unique_lock lock(mutex);
  if (!changed.wait_for(lock, timeout, [&] { return outcome.has_value(); }))
    return fail(errc::deadline_exceeded, "the first command does not end");
  return *outcome;
}

/// A sandbox over an empty layer: the file helpers of aether need nothing of an image.
result<std::string> try_sandbox(container_backend& backend, const std::filesystem::path& image) {
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<result<void>> outcome;
  const auto finish = [&](result<void> r) {
    const std::scoped_lock lock(mutex);
    outcome = std::move(r);
    changed.notify_all();
  };
  backends::event_sink sink;
  sink.started = [](const auto&) {};
  sink.failed = [&](const backends::command_failed& f) { finish(fail(f.why)); };
  sink.exited = [&](const backends::command_exited&) { finish({}); };
  sink.gone = [&](base::cause, const std::string& why) { finish(fail(errc::sandbox_failed, why)); };
  backends::start_spec spec;
  spec.sandbox_id = spec.hostname = "probe-" + base::random_token(40);
  spec.layers = {{"probe-empty", image}};
  DSEC_TRY(const auto sandbox, backend.start(spec, sink));
  backends::exec_spec write;
  write.id = "write";
  write.kind = backends::exec_kind::write_file;
  write.argv = {"/probe"};
  write.stdin_data = "written";
  auto written = run(*sandbox, changed, mutex, outcome, write);
  const auto stopped = sandbox->stop();
  if (!written) return fail(written.error());
  if (!stopped) return fail(stopped.error());
  return std::string("started one over an empty EROFS layer and wrote a file in it");
}

result<std::string> try_backend(const base::node_config& node, const std::filesystem::path& state) {
  DSEC_CHECK(sys::make_directory_at(AT_FDCWD, state, 0700));
  const auto image = state / "probe.erofs";
  DSEC_TRY(const auto file, sys::open_at(AT_FDCWD, image, O_WRONLY | O_CREAT | O_TRUNC, 0400));
  const auto bytes = empty_erofs_image();
  if (::write(file.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size()))
    return fail_errno("cannot write '" + image.string() + "'");
  DSEC_CHECK(kill_launchers(state, 0));  // of a probe that was killed: nobody wants it back
  DSEC_TRY(const auto backend,
           container_backend::open(base::paths(state), node, {},
                                   {"container.probe", "container.probe-stop"}));
  DSEC_CHECK(backend->end_unrecovered());
  auto tried = try_sandbox(*backend, image);
  const auto closed = backend->close();
  if (tried && !closed) return fail(closed.error());
  return tried;
}

}  // namespace

std::vector<backends::probe_item> probe_host(const std::filesystem::path& state,
                                             const base::node_config& worker) {
  auto node = worker;
  node.instance += "-probe";
  node.slot_pool = 0;
  const auto scratch = std::filesystem::weakly_canonical(state) / "probe";
  std::vector<backends::probe_item> items;
  items.push_back(item("control group hierarchies", describe_hierarchies(),
                       "mount cgroup2 at /sys/fs/cgroup, or version 1 with cpu, memory and pids"));
  const auto groups = try_groups(node, scratch);
  items.push_back(item("limits of control groups", groups.limited,
                       "give dsecd a writable control group tree with cpu, memory and pids: "
                       "Delegate=yes in its unit, a privileged container"));
  items.push_back(item("clone into a control group", groups.cloned_into, "run Linux 5.7 or newer"));
  items.push_back(item("cgroup.kill", groups.killed, "run Linux 5.14 or newer"));
  items.push_back(
      item("user namespaces", user_namespaces(node.uid_base),
           "sysctl -w user.max_user_namespaces=65536 kernel.unprivileged_userns_clone=1"));
  items.push_back(item("a sandbox: EROFS layer, overlay on mapped ids, aether",
                       try_backend(node, scratch),
                       "modprobe -a erofs overlay loop; run Linux 5.19 or newer"));
  std::error_code ignored;
  std::filesystem::remove_all(scratch, ignored);
  return items;
}

}  // namespace dsec::container

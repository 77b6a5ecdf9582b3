#include "backends/container/probe.hpp"

#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <mutex>

#include "backends/container/container_backend.hpp"
#include "backends/container/empty_image.hpp"
#include "backends/container/launcher_search.hpp"
#include "backends/sys/file.hpp"
#include "base/ids.hpp"

namespace dsec::container {
namespace {

using backends::probe_item;
using base::errc;
using base::fail;
using base::fail_errno;
using base::result;

constexpr auto timeout = std::chrono::seconds(10);

/// A child that only waits to be killed; it runs no code that a fork of a threaded process could
/// upset.
class waiting_child {
 public:
  static result<waiting_child> start(std::uint64_t flags, int group) {
    clone_args arguments{};
    arguments.flags = flags;
    arguments.exit_signal = SIGCHLD;
    arguments.cgroup = group < 0 ? 0 : static_cast<std::uint64_t>(group);
    const auto pid = ::syscall(SYS_clone3, &arguments, sizeof arguments);
    if (pid == 0) {
      while (true) ::syscall(SYS_pause);
    }
    if (pid < 0) return fail_errno("clone3");
    return waiting_child(static_cast<pid_t>(pid));
  }
  waiting_child(waiting_child&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  waiting_child& operator=(waiting_child&&) = delete;
  ~waiting_child() {
    if (pid_ == 0) return;
    ::kill(pid_, SIGKILL);
    while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  explicit waiting_child(pid_t pid) : pid_(pid) {}
  pid_t pid_;
};

probe_item item(std::string what, const result<std::string>& found, const std::string& remedy) {
  if (found) return {std::move(what), true, *found};
  return {std::move(what), false, found.error().to_string() + "; " + remedy};
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
  DSEC_TRY(const auto child, waiting_child::start(CLONE_NEWUSER, -1));
  const auto proc = "/proc/" + std::to_string(child.pid());
  const auto map = "0 " + std::to_string(first_id) + " 65536";
  DSEC_CHECK(sys::write_file_at(AT_FDCWD, proc + "/uid_map", map));
  DSEC_CHECK(sys::write_file_at(AT_FDCWD, proc + "/gid_map", map));
  return "made one and mapped 65536 ids from " + std::to_string(first_id) + " on";
}

/// Limits, clone into a group and cgroup.kill, with the code that sandboxes use.
result<std::string> use_groups(const cgroup_tree& tree, std::uint32_t aether_uid) {
  DSEC_TRY(auto slot, tree.make_slot(0, aether_uid));
  DSEC_CHECK(tree.set_limits(slot, {}));
  DSEC_TRY(const auto child, waiting_child::start(CLONE_INTO_CGROUP, slot.fds.init.get()));
  DSEC_CHECK(slot.slot.kill());
  DSEC_CHECK(slot.slot.wait_empty(sys::after(timeout)));
  return std::string("limited a group, cloned a process into it, killed it");
}

result<std::string> try_groups(const base::node_config& node, const std::filesystem::path& state) {
  DSEC_TRY(const auto tree, cgroup_tree::open(node.instance, state));
  DSEC_CHECK(tree.clear(sys::after(timeout)));
  auto used = use_groups(tree, node.aether_uid_base);
  const auto removed = tree.remove(sys::after(timeout));
  if (used && !removed) return fail(removed.error());
  return used;
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

std::vector<probe_item> probe_host(const std::filesystem::path& state,
                                   const base::node_config& worker) {
  auto node = worker;
  node.instance += "-probe";
  node.slot_pool = 0;
  const auto scratch = std::filesystem::weakly_canonical(state) / "probe";
  std::vector<probe_item> items;
  items.push_back(item("control group hierarchies", describe_hierarchies(),
                       "mount cgroup2 at /sys/fs/cgroup, or version 1 with cpu, memory and pids"));
  items.push_back(item("limits, clone into a group, cgroup.kill", try_groups(node, scratch),
                       "needs Linux 5.14 and, in a container, a writable control group tree"));
  items.push_back(item(
      "user namespaces", user_namespaces(node.uid_base),
      "set the sysctls user.max_user_namespaces and kernel.unprivileged_userns_clone above 0"));
  items.push_back(item(
      "a sandbox: EROFS layer, overlay on mapped ids, aether", try_backend(node, scratch),
      "needs EROFS and overlayfs in the kernel (modprobe erofs overlay), Linux 5.19 or newer"));
  std::error_code ignored;
  std::filesystem::remove_all(scratch, ignored);
  return items;
}

}  // namespace dsec::container

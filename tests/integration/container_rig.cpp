#include "container_rig.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <thread>
#include <utility>

#include "backends/container/hierarchies.hpp"
#include "backends/sys/temp_dir.hpp"
#include "base/embedded.hpp"
#include "base/ids.hpp"

namespace dsec::test {
namespace {

namespace fs = std::filesystem;

void write_program(const fs::path& path) {
  const auto attack = base::embedded_attack();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(attack.data()),
             static_cast<std::streamsize>(attack.size()));
  fs::permissions(path, fs::perms(0755));
}

void fill_box(const fs::path& tree) {
  for (const auto* dir : {"bin", "etc", "root", "home/joe", "tmp"})
    fs::create_directories(tree / dir);
  fs::copy_file("/bin/busybox", tree / "bin/busybox");
  for (const auto* applet : {"sh",     "cat",   "echo",     "true",      "false", "sleep",  "id",
                             "ls",     "mkdir", "head",     "tail",      "wc",    "dd",     "yes",
                             "env",    "pwd",   "hostname", "kill",      "seq",   "setsid", "mount",
                             "umount", "grep",  "stat",     "sha256sum", "ps",    "rm",     "tr"})
    fs::create_symlink("busybox", tree / "bin" / applet);
  std::ofstream(tree / "etc/passwd")
      << "root:x:0:0::/root:/bin/sh\njoe:x:1000:1000::/home/joe:/bin/sh\n";
  std::ofstream(tree / "etc/group") << "root:x:0:\njoe:x:1000:\n";
  fs::permissions(tree / "tmp", fs::perms(01777));
  write_program(tree / "attack");
}

void fill_bare(const fs::path& tree) {
  fs::create_directories(tree);
  write_program(tree / "attack");
}

struct image_set {
  sys::temp_dir dir = *sys::temp_dir::make("dsec-images");
  std::map<std::string, fs::path> files;

  image_set() {
    const std::pair<const char*, void (*)(const fs::path&)> kinds[] = {{"box", fill_box},
                                                                       {"bare", fill_bare}};
    for (const auto& [name, fill] : kinds) {
      const auto tree = dir.path() / name;
      fill(tree);
      files[name] = dir.path() / (std::string(name) + ".erofs");
      const auto command =
          "mkfs.erofs " + files[name].string() + " " + tree.string() + " >/dev/null 2>&1";
      if (std::system(command.c_str()) != 0) throw std::runtime_error("mkfs.erofs failed");
    }
  }
};

/// Distinct for every rig of this process and, most likely, of others on the machine.
std::uint32_t next_number() {
  static std::uint32_t last = 0;
  return ++last;
}

/// A range of uids that no other run on this machine has now: its lock is held until the process
/// ends, so that the leak check sees only processes of its own.
std::uint32_t reserve_range() {
  for (std::uint32_t range = 0; range < 64; ++range) {
    const auto file = "/tmp/dsec-test-uids." + std::to_string(range);
    const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0 && ::flock(fd, LOCK_EX | LOCK_NB) == 0) return range;
    if (fd >= 0) ::close(fd);
  }
  throw std::runtime_error("too many test runs at once");
}

template <class T>
T must(base::result<T> r) {
  if (!r) throw std::runtime_error(r.error().to_string());
  if constexpr (!std::is_void_v<T>) return std::move(*r);
}

std::string read_stream(backends::instance& i, const std::string& id, backends::stream which,
                        std::uint64_t total) {
  std::string text;
  for (std::uint64_t at = 0; at < total;) {
    const auto piece = must(i.read_output(id, which, at, 1U << 20U, total));
    if (piece.data.empty()) break;
    text += piece.data;
    at = piece.offset + piece.data.size();
  }
  return text;
}

}  // namespace

backends::event_sink recorder::sink() {
  const auto note = [s = state_](const auto& change) {
    const std::scoped_lock lock(s->mutex);
    change(*s);
    s->changed.notify_all();
  };
  backends::event_sink sink;
  sink.started = [note](const backends::command_started& e) {
    note([&](state& s) { ++s.started[e.id]; });
  };
  sink.exited = [note](const backends::command_exited& e) {
    note([&](state& s) { s.ends[e.id].exited = e; });
  };
  sink.failed = [note](const backends::command_failed& e) {
    note([&](state& s) { s.ends[e.id].failed = e.why; });
  };
  sink.gone = [note](base::cause c, const std::string& why) {
    note([&](state& s) {
      ++s.times_gone;
      s.gone = std::pair{c, why};
    });
  };
  return sink;
}

bool recorder::wait_started(const std::string& id, std::chrono::milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, limit, [&] { return state_->started.count(id) > 0; });
}

std::optional<ended> recorder::wait_ended(const std::string& id, std::chrono::milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  if (!state_->changed.wait_for(lock, limit, [&] { return state_->ends.count(id) > 0; }))
    return std::nullopt;
  return state_->ends[id];
}

std::optional<std::pair<base::cause, std::string>> recorder::wait_gone(
    std::chrono::milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, limit, [&] { return state_->gone.has_value(); });
  return state_->gone;
}

int recorder::times_gone() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->times_gone;
}

backends::exec_spec shell(const std::string& script) {
  backends::exec_spec spec;
  spec.kind = backends::exec_kind::shell;
  spec.argv = {script};
  spec.env = {"PATH=/bin"};
  return spec;
}

backends::exec_spec program(std::vector<std::string> argv) {
  backends::exec_spec spec;
  spec.argv = std::move(argv);
  spec.env = {"PATH=/bin"};
  return spec;
}

backends::exec_spec with_id(backends::exec_spec spec, const std::string& id) {
  spec.id = id;
  return spec;
}

ended container_box::run(backends::exec_spec spec, std::chrono::milliseconds limit) {
  if (spec.id.empty()) spec.id = next_id();
  const auto id = spec.id;
  must(instance_->exec(std::move(spec)));
  return wait(id, limit);
}

ended container_box::sh(const std::string& script, std::chrono::milliseconds limit) {
  return run(shell(script), limit);
}

ended container_box::wait(const std::string& id, std::chrono::milliseconds limit) {
  auto end = events_.wait_ended(id, limit);
  if (!end) throw std::runtime_error("command '" + id + "' does not end");
  if (end->exited) {
    end->out = read_stream(*instance_, id, backends::stream::out, end->exited->stdout_total);
    end->err = read_stream(*instance_, id, backends::stream::err, end->exited->stderr_total);
  }
  return *end;
}

std::string container_box::begin(backends::exec_spec spec) {
  if (spec.id.empty()) spec.id = next_id();
  const auto id = spec.id;
  must(instance_->exec(std::move(spec)));
  if (!events_.wait_started(id, 10s))
    throw std::runtime_error("command '" + id + "' does not start");
  return id;
}

std::string container_box::begin_sh(const std::string& script) {
  return begin(shell(script));
}

void container_box::stop() {
  must(instance_->stop());
}

const fs::path& box_image(const std::string& name) {
  static const image_set images;
  return images.files.at(name);
}

container_rig::container_rig(const rig_options& options, bool open_now) {
  box_image("box");  // made before descriptors are counted
  const auto name = "dsec-test-" + std::to_string(::getpid()) + "-" + std::to_string(next_number());
  scope_.instance = name;
  scope_.state = fs::path("/var/tmp") / name;
  scope_.slots = options.max_sandboxes;
  static const auto range = reserve_range();
  scope_.uid_base = 500'000'000 + range * 65536 * 64;
  scope_.aether_uid_base = 480'000'000 + range * 64;
  scope_.spools_allowed = true;
  node_.instance = name;
  node_.slot_pool = options.slot_pool;
  node_.max_sandboxes = options.max_sandboxes;
  node_.uid_base = scope_.uid_base;
  node_.aether_uid_base = scope_.aether_uid_base;
  fs::create_directories(scope_.state);
  descriptors_ = open_descriptors();
  if (open_now) open();
}

void container_rig::open() {
  open_only();
  end_unrecovered();
}

void container_rig::open_only() {
  backend_ = must(container::container_backend::open(base::paths(scope_.state), node_, {}));
}

void container_rig::end_unrecovered() {
  must(backend_->end_unrecovered());
}

void container_rig::leave() {
  backend_->leave();
  must(backend_->close());
  backend_.reset();
}

container_rig::~container_rig() {
  if (backend_) {
    const auto closed = backend_->close();
    INFO((closed ? std::string() : closed.error().to_string()));
    CHECK(closed);
  }
  backend_.reset();
  // Namespaces and their mounts go when the kernel gets round to it.
  eventually([&] { return find_leaks(scope_).empty(); }, 5s);
  CHECK(find_leaks(scope_) == std::vector<std::string>{});
  CHECK(open_descriptors() == descriptors_);
  std::error_code ignored;
  fs::remove_all(scope_.state, ignored);
}

backends::start_spec container_rig::spec(const std::string& id, const std::string& image) {
  backends::start_spec s;
  s.sandbox_id = id;
  s.hostname = id;
  s.layers = {{"layer-" + image, box_image(image)}};
  return s;
}

base::result<container_box> container_rig::try_start(const backends::start_spec& spec) {
  recorder events;
  auto started = backend_->start(spec, events.sink());
  if (!started) return base::fail(started.error());
  return container_box(std::move(*started), events);
}

container_box container_rig::start(const backends::start_spec& spec) {
  return must(try_start(spec));
}

base::result<container_rig::taken_box> container_rig::try_recover(const std::string& id) {
  recorder events;
  DSEC_TRY(auto what, backend_->recover(spec(id), events.sink()));
  container_box box(std::move(what.instance), events, base::random_token(40) + ".");
  return taken_box{std::move(box), std::move(what)};
}

container_rig::taken_box container_rig::recover(const std::string& id) {
  return must(try_recover(id));
}

container_rig::taken_box container_rig::inherit(const std::string& id) {
  open_only();
  auto taken = recover(id);
  end_unrecovered();
  return taken;
}

fs::path container_rig::group() const {
  return must(container::find_hierarchies()).unified.base() / scope_.instance;
}

std::vector<pid_t> container_rig::inhabitants() const {
  std::vector<pid_t> pids;
  std::error_code gone;
  for (fs::recursive_directory_iterator it(group(), gone), end; !gone && it != end;
       it.increment(gone)) {
    if (it->path().filename() != "cgroup.procs") continue;
    std::ifstream in(it->path());
    for (pid_t pid = 0; in >> pid;) pids.push_back(pid);
  }
  return pids;
}

std::optional<pid_t> container_rig::launcher_pid() const {
  return find_launcher(scope_);
}

}  // namespace dsec::test

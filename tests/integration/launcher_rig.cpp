// The rest of launcher_rig.hpp: images, groups, starting and ending launchers.
#include "launcher_rig.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <thread>

#include "backends/sys/file.hpp"
#include "backends/sys/mountinfo.hpp"
#include "base/embedded.hpp"
#include "support/eventually.hpp"
#include "support/leak_check.hpp"

extern "C" {
extern const std::byte dsec_standin_image_begin[], dsec_standin_image_end[];
}

namespace dsec::test {
namespace {

namespace fs = std::filesystem;

constexpr std::uint32_t slots = 8, ids = 65536, runs = 1000;

/// "" when it is gone, as a process may be.
std::string slurp(const fs::path& path) {
  return sys::read_file(path).value_or("");
}

void spill(const fs::path& path, const std::string& text) {
  std::ofstream(path) << text;
}

void run_tool(const std::string& command) {
  if (std::system((command + " >/dev/null 2>&1").c_str()) != 0)
    throw rig_error("failed: " + command);
}

void fill_busybox(const fs::path& tree) {
  fs::create_directories(tree / "bin");
  fs::create_directories(tree / "etc");
  fs::copy_file("/bin/busybox", tree / "bin/busybox");
  spill(tree / "etc/which", "base");
}

void fill_tool(const fs::path& tree) {
  fs::create_directories(tree / "etc");
  fs::create_directories(tree / "opt");
  spill(tree / "etc/which", "tool");
  spill(tree / "opt/tool", "");
}

void fill_hostile(const fs::path& tree) {
  fs::create_directories(tree / "etc");
  fs::create_directories(tree / "dev");
  fs::create_symlink("/etc", tree / "proc");
  spill(tree / "dev/null", "not a device");
  for (const auto* name : {"dev/sda", "etc/sda"}) {
    if (::mknod((tree / name).c_str(), S_IFCHR | 0666, makedev(1, 5)) != 0)
      throw rig_error("cannot make a device node");
  }
}

struct image_set {
  disk_dir dir;
  std::map<std::string, fs::path> files;

  image_set() {
    const std::pair<const char*, void (*)(const fs::path&)> kinds[] = {
        {"busybox", fill_busybox}, {"tool", fill_tool}, {"hostile", fill_hostile}};
    for (const auto& [name, fill] : kinds) {
      const auto tree = dir.path() / "tree" / name;
      fs::create_directories(tree);
      fill(tree);
      files[name] = dir.path() / (std::string(name) + ".erofs");
      run_tool("mkfs.erofs " + files[name].string() + " " + tree.string());
    }
  }
};

/// Where groups of ours may stand: mount point and the group this process is in, for version 2.
fs::path unified_base() {
  std::string own;
  for (const auto& m : sys::parse_membership(slurp("/proc/self/cgroup"))) {
    if (m.hierarchy == 0) own = m.path;
  }
  for (const auto& m : sys::parse_mountinfo(slurp("/proc/self/mountinfo"))) {
    if (m.type == "cgroup2") return fs::path(m.mount_point + own);
  }
  throw rig_error("no cgroup v2");
}

std::vector<fs::path> legacy_bases() {
  std::vector<fs::path> bases;
  for (const auto* name : {"memory", "pids", "freezer"}) {
    const fs::path base = fs::path("/sys/fs/cgroup") / name;
    if (fs::exists(base / "tasks")) bases.push_back(base);
  }
  return bases;
}

unique_fd must_open(const fs::path& path, int flags) {
  unique_fd fd(::open(path.c_str(), flags | O_CLOEXEC));
  if (!fd) throw rig_error("cannot open " + path.string());
  return fd;
}

unique_fd listen_at(const fs::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  unique_fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket.get(), 4) != 0)
    throw rig_error("cannot listen");
  return socket;
}

template <std::size_t N>
void put(char (&field)[N], const std::string& value) {
  if (value.size() >= N) throw rig_error("too long: " + value);
  memcpy(field, value.data(), value.size());
}

}  // namespace

disk_dir::disk_dir() {
  std::string name = "/var/tmp/dsec-launcher-XXXXXX";
  fs::create_directories("/var/tmp");
  if (::mkdtemp(name.data()) == nullptr) throw rig_error("cannot make a directory in /var/tmp");
  path_ = name;
}

disk_dir::~disk_dir() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

const fs::path& image(const std::string& name) {
  static const image_set images;
  return images.files.at(name);
}

slot_groups slot_groups::make(const std::string& name, uid_t aether) {
  slot_groups g;
  const auto add = [&](const fs::path& dir) {
    if (::mkdir(dir.c_str(), 0755) != 0) throw rig_error("cannot make group " + dir.string());
    g.made.push_back(dir);
    return dir;
  };
  const auto slot = add(unified_base() / name);
  g.init = must_open(add(slot / "init"), O_RDONLY | O_DIRECTORY);
  const auto cmd = add(slot / "cmd");
  if (::chown(cmd.c_str(), aether, aether) != 0) throw rig_error("cannot delegate a group");
  g.slot = must_open(slot, O_RDONLY | O_DIRECTORY);
  for (const auto& base : legacy_bases()) {
    const auto group = add(base / name);
    g.init_tasks.push_back(must_open(add(group / "init") / "tasks", O_WRONLY));
    const auto commands = add(group / "cmd");
    g.cmd_tasks.push_back(must_open(commands / "tasks", O_WRONLY));
    if (fs::exists(commands / "memory.oom_control")) {
      g.oom = must_open(commands / "memory.oom_control", O_RDONLY);
      g.oom_v2 = 0;
    }
  }
  return g;
}

slot_groups::~slot_groups() {
  // The real aether makes groups of its own in `cmd`.
  std::vector<fs::path> below;
  for (const auto& dir : made) {
    for (const auto& entry : fs::directory_iterator(dir)) {
      if (entry.is_directory() && std::find(made.begin(), made.end(), entry.path()) == made.end())
        below.push_back(entry.path());
    }
  }
  made.insert(made.end(), below.begin(), below.end());
  for (auto it = made.rbegin(); it != made.rend(); ++it) {
    // A dying task is counted a little longer than its parent waits for it.
    INFO(*it);
    CHECK(eventually([&] { return ::rmdir(it->c_str()) == 0 || errno == ENOENT; }));
  }
}

std::uint32_t launcher_rig::uid_base() {
  return 500'000'000 + static_cast<std::uint32_t>(::getpid()) % runs * slots * ids;
}

std::uint32_t launcher_rig::aether_uid() {
  return 1'100'000'000 + static_cast<std::uint32_t>(::getpid()) % runs * slots;
}

namespace {

/// Everything but files, which go with the state directory, and groups, which are not the
/// launcher's.
std::vector<std::string> host_leaks(const fs::path& state) {
  leak_scope scope{"-", state};
  scope.uid_base = launcher_rig::uid_base();
  scope.aether_uid_base = launcher_rig::aether_uid();
  scope.slots = slots;
  auto leaks = find_leaks(scope);
  std::erase_if(leaks, [](const auto& leak) { return leak.substr(0, 5) == "file "; });
  return leaks;
}

}  // namespace

launcher_rig::launcher_rig(std::vector<std::string> environment, guest_program program)
    : environment_(std::move(environment)) {
  fs::create_directories(state() / "sandboxes");
  listening_ = listen_at(state() / "launcher.sock");
  const auto size = static_cast<std::size_t>(dsec_standin_image_end - dsec_standin_image_begin);
  const auto bytes = program == guest_program::standin ? std::span(dsec_standin_image_begin, size)
                                                       : base::embedded_aether();
  auto memfd = sys::sealed_memfd("standin", bytes, 0111);
  if (!memfd) throw rig_error(memfd.error().to_string());
  aether_ = std::move(*memfd);
  start_launcher();
}

void launcher_rig::start_launcher(int layers_ns) {
  const auto low = sys::sealed_memfd("launcher", base::embedded_launcher(), 0500);
  if (!low) throw rig_error(low.error().to_string());
  const unique_fd image(::fcntl(low->get(), F_DUPFD_CLOEXEC, 100));
  const auto state_dir = must_open(state(), O_RDONLY | O_DIRECTORY);
  const std::string program = "/proc/self/fd/" + std::to_string(image.get());
  std::vector<int> passed{listening_.get(), state_dir.get(), aether_.get()};
  if (layers_ns >= 0) passed.push_back(layers_ns);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  std::vector<std::string> words{"launcher"};
  std::vector<unique_fd> high;
  int target = 20;
  for (const int fd : passed) {
    high.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 100));
    posix_spawn_file_actions_adddup2(&actions, high.back().get(), target);
    words.push_back(std::to_string(target++));
  }
  std::vector<char*> argv, envp;
  for (auto& w : words) argv.push_back(w.data());
  for (auto& e : environment_) envp.push_back(e.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  const int e =
      posix_spawn(&pid_, program.c_str(), &actions, &attributes, argv.data(), envp.data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (e != 0) throw rig_error(std::string("cannot start the launcher: ") + strerror(e));
  connect();
}

void launcher_rig::connect() {
  client_.emplace(state() / "launcher.sock");
}

void launcher_rig::kill_launcher() {
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

launcher_rig::~launcher_rig() {
  client_.reset();
  if (pid_ > 0) kill_launcher();
  // Nobody holds the other ends of the channels now: every sandbox ends by itself, and with it all
  // that was made for it.
  eventually([&] { return host_leaks(state()).empty(); });
  CHECK(host_leaks(state()) == std::vector<std::string>{});
  for (const pid_t pid : processes_of_tests()) ::kill(pid, SIGKILL);
}

fs::path launcher_rig::upper(const std::string& id) const {
  return state() / "sandboxes" / id / "upper";
}

void launcher_rig::prepare(const std::string& id, std::uint32_t number,
                           const sandbox_options& options) {
  for (const auto& layer : options.layers) {
    if (const auto error = client_->attach(layer, image(layer)); error != "done")
      throw rig_error(error);
  }
  const auto aether = aether_uid() + number;
  if (const auto error = client_->make_slot(number, uid_base() + number * ids, aether);
      error != "done")
    throw rig_error(error);
  groups_.erase(number);
  groups_.emplace(number, slot_groups::make("dsec-launcher-" + std::to_string(::getpid()) + "-" +
                                                std::to_string(number),
                                            aether));
  fs::create_directories(upper(id) / "u");
  fs::create_directories(upper(id) / "w");
}

launcher_rig::made launcher_rig::ask_create(const std::string& id, std::uint32_t number,
                                            const sandbox_options& options) {
  guest::launch_create request{};
  put(request.sandbox, id);
  put(request.hostname, options.hostname);
  request.slot = number;
  request.layers = static_cast<std::uint32_t>(options.layers.size());
  for (std::size_t i = 0; i < options.layers.size(); ++i) put(request.layer[i], options.layers[i]);
  const auto& g = groups_.at(number);
  request.init_tasks = static_cast<std::uint32_t>(g.init_tasks.size());
  request.cmd_tasks = static_cast<std::uint32_t>(g.cmd_tasks.size());
  request.oom_v2 = g.oom_v2;
  request.nofile = 4096;
  request.shm_bytes = options.shm_bytes;
  unique_fd upper_dir(::open(upper(id).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!upper_dir) upper_dir = must_open(state(), O_RDONLY | O_DIRECTORY);
  std::vector<int> fds{upper_dir.get(), g.init.get(), g.slot.get()};
  if (g.oom_v2 != 2) fds.push_back(g.oom.get());
  for (const auto& t : g.init_tasks) fds.push_back(t.get());
  for (const auto& t : g.cmd_tasks) fds.push_back(t.get());
  reply r = client_->ask(guest::launch::create, request, fds);
  made m{launch_client::outcome(r), {}, {}};
  if (m.outcome == "done") {
    m.box = inside(std::move(r.fds.at(0)));
    m.pidfd = std::move(r.fds.at(1));
  }
  return m;
}

launcher_rig::made launcher_rig::create(const std::string& id, std::uint32_t number,
                                        const sandbox_options& options) {
  prepare(id, number, options);
  made m = ask_create(id, number, options);
  if (m.outcome != "done") throw rig_error("create: " + m.outcome);
  return m;
}

void launcher_rig::destroy(const std::string& id, made& m) {
  m.box.quit(0);
  if (client_->wait_exited().sandbox != id) throw rig_error("another sandbox ended");
  if (const auto error = client_->release(id); error != "done") throw rig_error(error);
}

std::string mount_table() {
  return slurp("/proc/self/mountinfo");
}

std::string loop_devices() {
  const auto ours = image("busybox").parent_path().string();
  std::string all;
  for (const auto& entry : fs::directory_iterator("/sys/block")) {
    const auto backing = slurp(entry.path() / "loop/backing_file");
    if (backing.find(ours) == 0) all += entry.path().filename().string() + " " + backing;
  }
  return all;
}

std::vector<pid_t> processes_of_tests() {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const auto name = entry.path().filename().string();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    const auto text = slurp(entry.path() / "status");
    const auto at = text.find("\nUid:\t");
    if (at == std::string::npos) continue;
    const auto uid = std::stoul(text.substr(at + 6));
    if (uid - launcher_rig::uid_base() < slots * ids || uid - launcher_rig::aether_uid() < slots)
      found.push_back(std::stoi(name));
  }
  return found;
}

}  // namespace dsec::test

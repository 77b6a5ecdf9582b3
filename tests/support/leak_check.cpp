#include "support/leak_check.hpp"

#include <fcntl.h>
#include <linux/nsfs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "backends/sys/mountinfo.hpp"
#include "base/unique_fd.hpp"

namespace dsec::test {
namespace {

namespace fs = std::filesystem;
using lines = std::vector<std::string>;

std::string read(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string link_of(const fs::path& link) {
  std::error_code gone;
  return fs::read_symlink(link, gone).string();
}

bool is_number(const std::string& name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::vector<fs::path> entries(const fs::path& directory) {
  std::vector<fs::path> found;
  std::error_code gone;
  for (fs::directory_iterator it(directory, gone), end; !gone && it != end; it.increment(gone))
    found.push_back(it->path());
  return found;
}

std::vector<fs::path> processes() {
  auto all = entries("/proc");
  std::erase_if(all, [](const auto& p) {
    return !is_number(p.filename()) || p.filename() == std::to_string(::getpid());
  });
  return all;
}

bool in_groups(const fs::path& process, const std::string& instance) {
  for (const auto& group : sys::parse_membership(read(process / "cgroup"))) {
    for (const auto& part : fs::path(group.path)) {
      if (part == instance) return true;
    }
  }
  return false;
}

bool is_uid_of(std::uint64_t uid, const leak_scope& scope) {
  return (uid >= scope.uid_base && uid < scope.uid_base + 65536ULL * scope.slots) ||
         (uid >= scope.aether_uid_base && uid < scope.aether_uid_base + std::uint64_t{scope.slots});
}

bool has_uid_of(const fs::path& process, const leak_scope& scope) {
  struct stat info {};
  if (scope.uid_base == 0 || ::stat(process.c_str(), &info) != 0) return false;
  // A non-dumpable process's files belong to root: its status tells the truth.
  std::istringstream status(read(process / "status"));
  std::string word;
  while (status >> word && word != "Uid:") {
  }
  std::uint64_t uid = 0;
  status >> uid;
  return is_uid_of(uid, scope);
}

bool is_launcher(const fs::path& process, const leak_scope& scope) {
  const auto variable = "DSEC_STATE=" + scope.state.string();
  return link_of(process / "exe") == "/memfd:dsec-launcher (deleted)" &&
         read(process / "environ").substr(0, variable.size() + 1) == variable + '\0';
}

fs::path parent_of(const fs::path& process) {
  std::istringstream status(read(process / "status"));
  std::string word;
  while (status >> word && word != "PPid:") {
  }
  std::string parent;
  status >> parent;
  return fs::path("/proc") / parent;
}

void find_processes(const leak_scope& scope, lines& leaks) {
  for (const auto& process : processes()) {
    if (!in_groups(process, scope.instance) && !has_uid_of(process, scope) &&
        !is_launcher(process, scope))
      continue;
    auto name = read(process / "comm");
    name = name.substr(0, name.find('\n'));
    if (!name.empty())
      leaks.push_back("process " + process.filename().string() + " (" + name + ")");
  }
}

/// Whom a namespace belongs to: the maker of the user namespace that it is, or is in
/// (ioctl_nsfs(2)).
std::optional<uid_t> owner_of(const fs::path& link, bool is_user) {
  base::unique_fd space(::open(link.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (space && !is_user) space.reset(::ioctl(space.get(), NS_GET_USERNS));
  uid_t owner = 0;
  if (!space || ::ioctl(space.get(), NS_GET_OWNER_UID, &owner) != 0) return std::nullopt;
  return owner;
}

void find_namespaces(const leak_scope& scope, lines& leaks) {
  if (scope.uid_base == 0) return;
  std::set<std::string> seen;
  for (const auto& process : entries("/proc")) {
    if (!is_number(process.filename())) continue;
    for (const auto* directory : {"ns", "fd"}) {
      for (const auto& link : entries(process / directory)) {
        const auto name = link_of(link);
        const auto kind = name.substr(0, name.find(":["));
        static const std::set<std::string> kinds{"user", "net", "uts", "ipc", "mnt", "pid"};
        if (!kinds.contains(kind) || !seen.insert(name).second) continue;
        const auto owner = owner_of(link, kind == "user");
        if (owner && is_uid_of(*owner, scope))
          leaks.push_back("namespace " + name + " of uid " + std::to_string(*owner) + ": " +
                          link.string());
      }
    }
  }
}

/// How much of a path must be the state directory's.
enum class seen_as { whole, tail };

/// Whether `path` leads to the state directory or below it. What is named relative to the root of
/// its file system begins with the tail of the directory's path (seen_as::tail); what is seen from
/// another root may have something in front of all of it.
bool is_at(const fs::path& path, const fs::path& state, seen_as how) {
  const lines names(++state.begin(), state.end());
  const auto relative = path.relative_path();
  const lines parts(relative.begin(), relative.end());
  for (std::size_t end = 1; end <= parts.size(); ++end) {
    const auto length = std::min(end, names.size());
    if (length < names.size() && how == seen_as::whole) continue;
    if (std::equal(names.end() - static_cast<std::ptrdiff_t>(length), names.end(),
                   parts.begin() + static_cast<std::ptrdiff_t>(end - length)))
      return true;
  }
  return false;
}

void find_mounts(const leak_scope& scope, lines& leaks) {
  std::set<std::string> seen;
  for (const auto& process : entries("/proc")) {
    if (!is_number(process.filename())) continue;
    const auto space = link_of(process / "ns/mnt");
    if (space.empty() || !seen.insert(space).second) continue;
    for (const auto& m : sys::parse_mountinfo(read(process / "mountinfo"))) {
      if (is_at(m.mount_point, scope.state, seen_as::whole) ||
          is_at(m.root, scope.state, seen_as::tail) || is_at(m.source, scope.state, seen_as::tail))
        leaks.push_back("mount at " + m.mount_point + " in " + space + " of process " +
                        process.filename().string());
    }
  }
}

/// The instance's groups in every hierarchy, at any depth: below the root, or below the group that
/// was delegated to the daemon.
std::vector<fs::path> groups_of(const leak_scope& scope) {
  std::vector<fs::path> found;
  for (const auto& m : sys::parse_mountinfo(read("/proc/self/mountinfo"))) {
    if (m.type != "cgroup" && m.type != "cgroup2") continue;
    std::error_code gone;
    for (fs::recursive_directory_iterator it(m.mount_point, gone), end; !gone && it != end;
         it.increment(gone)) {
      std::error_code missing;
      if (it->path().filename() == scope.instance && it->is_directory(missing))
        found.push_back(it->path());
    }
  }
  return found;
}

void find_groups(const leak_scope& scope, lines& leaks) {
  for (const auto& group : groups_of(scope)) leaks.push_back("control group " + group.string());
}

/// Slots beyond those of the pool, groups of commands, and processes.
void find_busy_groups(const leak_scope& scope, std::size_t pool, lines& leaks) {
  for (const auto& group : groups_of(scope)) {
    std::size_t slots = 0;
    for (const auto& slot : entries(group)) {
      if (!fs::is_directory(slot)) continue;
      if (++slots > pool) leaks.push_back("control group " + slot.string());
      for (const auto& e : entries(slot / "cmd"))
        if (fs::is_directory(e)) leaks.push_back("control group " + e.string());
      for (const auto* part : {"init", "cmd"})
        if (!read(slot / part / "cgroup.procs").empty())
          leaks.push_back("processes in control group " + (slot / part).string());
    }
  }
}

void find_overlays(const leak_scope& scope, lines& leaks) {
  const auto launcher = find_launcher(scope);
  if (!launcher) return leaks.push_back("no launcher");
  const auto process = fs::path("/proc") / std::to_string(*launcher);
  for (const auto& m : sys::parse_mountinfo(read(process / "mountinfo"))) {
    if (m.type == "overlay") leaks.push_back("overlay at " + m.mount_point + " of the launcher");
  }
}

/// Writable layers; those of the pool's slots are named ".slot-N".
void find_uppers(const leak_scope& scope, std::size_t pool, lines& leaks) {
  std::size_t ready = 0;
  for (const auto& sandbox : entries(scope.state / "sandboxes")) {
    const bool unnamed = sandbox.filename().string().front() == '.';
    if (unnamed && ++ready <= pool) continue;
    if (unnamed || fs::exists(sandbox / "upper")) leaks.push_back("file " + sandbox.string());
  }
}

void find_loop_devices(const leak_scope& scope, lines& leaks) {
  for (const auto& device : entries("/sys/block")) {
    const auto file = read(device / "loop/backing_file");
    if (is_at(file, scope.state, seen_as::tail))
      leaks.push_back("loop device " + device.filename().string() + " on " + file);
  }
}

void find_files(const leak_scope& scope, lines& leaks) {
  for (const auto* directory : {"trash", "images/tmp"}) {
    for (const auto& e : entries(scope.state / directory)) leaks.push_back("file " + e.string());
  }
  for (const auto& sandbox : entries(scope.state / "sandboxes")) {
    if (!scope.spools_allowed) leaks.push_back("file " + sandbox.string());
    for (const auto& e : entries(sandbox)) {
      if (e.filename() != "spool") leaks.push_back("file " + e.string());
    }
  }
  for (const auto* name : {"launcher.sock", "probe", "doctor", "smoke"}) {
    if (fs::exists(scope.state / name)) leaks.push_back("file " + (scope.state / name).string());
  }
}

}  // namespace

std::vector<std::string> find_leaks(const leak_scope& scope) {
  lines leaks;
  find_processes(scope, leaks);
  find_namespaces(scope, leaks);
  find_mounts(scope, leaks);
  find_groups(scope, leaks);
  find_loop_devices(scope, leaks);
  find_files(scope, leaks);
  return leaks;
}

std::vector<std::string> find_live_leaks(const leak_scope& scope, std::size_t pool) {
  lines leaks;
  find_busy_groups(scope, pool, leaks);
  find_overlays(scope, leaks);
  find_uppers(scope, pool, leaks);
  return leaks;
}

std::optional<pid_t> find_launcher(const leak_scope& scope) {
  for (const auto& process : processes()) {
    // Its children look like it until they execute something else or end.
    if (is_launcher(process, scope) && !is_launcher(parent_of(process), scope))
      return static_cast<pid_t>(std::stol(process.filename()));
  }
  return std::nullopt;
}

std::size_t count_descriptors(pid_t process) {
  return entries("/proc/" + std::to_string(process) + "/fd").size();
}

std::vector<std::string> open_descriptors() {
  lines open;
  for (const auto& fd : entries("/proc/self/fd")) {
    auto what = link_of(fd);
    if (what.find("/proc/") == 0 || what.empty()) continue;  // the listing itself
    if (const auto number = what.find('['); number != std::string::npos) what.resize(number);
    open.push_back(std::move(what));
  }
  std::sort(open.begin(), open.end());
  return open;
}

}  // namespace dsec::test

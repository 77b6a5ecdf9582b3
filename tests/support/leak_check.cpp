#include "support/leak_check.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "backends/sys/mountinfo.hpp"

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
  return (uid >= scope.uid_base && uid < scope.uid_base + 65536ULL * scope.slots) ||
         (uid >= scope.aether_uid_base && uid < scope.aether_uid_base + std::uint64_t{scope.slots});
}

bool is_launcher(const fs::path& process, const leak_scope& scope) {
  const auto variable = "DSEC_STATE=" + scope.state.string();
  return link_of(process / "exe") == "/memfd:dsec-launcher (deleted)" &&
         read(process / "environ").substr(0, variable.size() + 1) == variable + '\0';
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

/// Sources are named relative to the root of their file system, so the tail of the path is what
/// both have.
bool is_at(const std::string& path, const fs::path& state) {
  return !path.empty() && path.find(state.filename().string()) != std::string::npos;
}

void find_mounts(const leak_scope& scope, lines& leaks) {
  std::set<std::string> seen;
  for (const auto& process : entries("/proc")) {
    if (!is_number(process.filename())) continue;
    const auto space = link_of(process / "ns/mnt");
    if (space.empty() || !seen.insert(space).second) continue;
    for (const auto& m : sys::parse_mountinfo(read(process / "mountinfo"))) {
      if (is_at(m.mount_point, scope.state) || is_at(m.root, scope.state) ||
          is_at(m.source, scope.state))
        leaks.push_back("mount at " + m.mount_point + " in " + space + " of process " +
                        process.filename().string());
    }
  }
}

/// At any depth: below the root of a hierarchy, or below the group that was delegated to the
/// daemon.
void find_groups(const leak_scope& scope, lines& leaks) {
  for (const auto& m : sys::parse_mountinfo(read("/proc/self/mountinfo"))) {
    if (m.type != "cgroup" && m.type != "cgroup2") continue;
    std::error_code gone;
    for (fs::recursive_directory_iterator it(m.mount_point, gone), end; !gone && it != end;
         it.increment(gone)) {
      std::error_code missing;
      if (it->path().filename() == scope.instance && it->is_directory(missing))
        leaks.push_back("control group " + it->path().string());
    }
  }
}

void find_loop_devices(const leak_scope& scope, lines& leaks) {
  for (const auto& device : entries("/sys/block")) {
    const auto file = read(device / "loop/backing_file");
    if (is_at(file, scope.state))
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
  if (fs::exists(scope.state / "launcher.sock"))
    leaks.push_back("file " + (scope.state / "launcher.sock").string());
}

}  // namespace

std::vector<std::string> find_leaks(const leak_scope& scope) {
  lines leaks;
  find_processes(scope, leaks);
  find_mounts(scope, leaks);
  find_groups(scope, leaks);
  find_loop_devices(scope, leaks);
  find_files(scope, leaks);
  return leaks;
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

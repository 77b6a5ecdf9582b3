// See groups.hpp. Which hierarchies there are is read from mountinfo (proc(5)); what a knob is
// called depends on the version.
#include "floor/groups.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <sstream>

#include "floor/sys.hpp"

namespace floor_bench {
namespace {

const std::vector<std::string> wanted = {"cpu", "memory", "pids"};

struct hierarchy {
  std::string path;
  bool unified = false;
  std::vector<std::string> controllers;
};

std::vector<std::string> made;  // deepest first

std::vector<std::string> split(const std::string& text, char by) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, by);) out.push_back(part);
  return out;
}

std::vector<std::string> only_wanted(std::vector<std::string> names) {
  std::erase_if(names, [](const auto& n) {
    return std::find(wanted.begin(), wanted.end(), n) == wanted.end();
  });
  return names;
}

std::vector<hierarchy> find_hierarchies() {
  std::vector<hierarchy> found;
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    const auto dash = line.find(" - ");
    const auto before = split(line.substr(0, dash), ' ');
    const auto after = split(line.substr(dash + 3), ' ');
    if (after[0] == "cgroup2") {
      std::ifstream file(before[4] + "/cgroup.controllers");
      std::string names;
      std::getline(file, names);
      found.push_back({before[4], true, only_wanted(split(names, ' '))});
    } else if (after[0] == "cgroup") {
      auto controllers = only_wanted(split(after[2], ','));
      if (!controllers.empty()) found.push_back({before[4], false, std::move(controllers)});
    }
  }
  return found;
}

void write_file(const std::string& path, const std::string& text) {
  const int fd =
      static_cast<int>(must(path.c_str(), call(__NR_open, path.c_str(), O_WRONLY | O_CLOEXEC)));
  must(path.c_str(), call(__NR_write, fd, text.data(), text.size()));
  ::close(fd);
}

int open_file(const std::string& path, int flags) {
  return static_cast<int>(must(path.c_str(), call(__NR_open, path.c_str(), flags | O_CLOEXEC)));
}

std::string make(const std::string& path) {
  must(path.c_str(), call(__NR_mkdir, path.c_str(), 0755));
  made.insert(made.begin(), path);
  return path;
}

void limit(const hierarchy& h, const std::string& cmd) {
  for (const auto& c : h.controllers) {
    if (c == "memory")
      write_file(cmd + (h.unified ? "/memory.max" : "/memory.limit_in_bytes"), "268435456");
    if (c == "pids") write_file(cmd + "/pids.max", "4096");
    if (c == "cpu" && h.unified) write_file(cmd + "/cpu.max", "100000 100000");
    if (c == "cpu" && !h.unified) write_file(cmd + "/cpu.cfs_quota_us", "100000");
  }
}

void hand_down(const hierarchy& h, const std::string& group) {
  for (const auto& c : h.controllers) write_file(group + "/cgroup.subtree_control", "+" + c);
}

void make_unified(const hierarchy& h, const std::string& name, unsigned aether_id, groups& out) {
  hand_down(h, h.path);
  const auto top = make(h.path + "/" + name);
  hand_down(h, top);
  const auto init = make(top + "/init");
  const auto cmd = make(top + "/cmd");
  limit(h, cmd);
  const auto one = make(cmd + "/c");
  // Cloning into a group needs write permission on its cgroup.procs and the common ancestor's
  // (cgroups(7)).
  for (const auto& group : {top, one}) {
    const auto procs = group + "/cgroup.procs";
    must("chown", call(__NR_chown, procs.c_str(), 0, aether_id));
    must("chmod", call(__NR_chmod, procs.c_str(), 0664));
  }
  out.init = open_file(init, O_RDONLY | O_DIRECTORY);
  out.command = open_file(one, O_RDONLY | O_DIRECTORY);
}

}  // namespace

groups make_groups(const std::string& name, unsigned aether_id) {
  groups out;
  for (const auto& h : find_hierarchies()) {
    if (h.unified) {
      make_unified(h, name, aether_id, out);
      continue;
    }
    const auto top = make(h.path + "/" + name);
    const auto init = make(top + "/init");
    const auto cmd = make(top + "/cmd");
    limit(h, cmd);
    out.init_tasks.push_back(open_file(init + "/tasks", O_WRONLY));
    out.command_tasks.push_back(open_file(cmd + "/tasks", O_WRONLY));
  }
  if (out.init < 0) give_up("no version 2 hierarchy is mounted", -ENOENT);
  return out;
}

void remove_groups() {
  for (const auto& path : made) {
    // The last process may still be leaving.
    for (int tries = 0; ::rmdir(path.c_str()) != 0 && errno == EBUSY && tries < 1000; ++tries)
      ::usleep(1000);
  }
  made.clear();
}

}  // namespace floor_bench

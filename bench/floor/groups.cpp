// See groups.hpp. Which hierarchies there are is read from mountinfo (proc(5)); what a knob is
// called depends on the version. All by descriptor of the hierarchy's root.
#include "floor/groups.hpp"

#include <dirent.h>
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
constexpr const char* leaves[] = {"/cmd/c", "/cmd", "/init", ""};  // in the order of removal

struct hierarchy {
  int root = -1;
  bool unified = false;
  bool flat = false;  // aether has no share of its own in it: one group, for the commands
  std::vector<std::string> controllers;
};

std::vector<hierarchy> found;

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

int open_file(int dir, const std::string& path, int flags) {
  return static_cast<int>(
      must(path.c_str(), call(__NR_openat, dir, path.c_str(), flags | O_CLOEXEC, 0)));
}

void write_file(int dir, const std::string& path, const std::string& text) {
  const int fd = open_file(dir, path, O_WRONLY);
  must(path.c_str(), call(__NR_write, fd, text.data(), text.size()));
  ::close(fd);
}

std::string make(const hierarchy& h, const std::string& path) {
  must(path.c_str(), call(__NR_mkdirat, h.root, path.c_str(), 0755));
  return path;
}

void limit(const hierarchy& h, const std::string& cmd) {
  for (const auto& c : h.controllers) {
    if (c == "memory") {
      const auto* knob = h.unified ? "/memory.max" : "/memory.limit_in_bytes";
      write_file(h.root, cmd + knob, "268435456");
    }
    if (c == "pids") write_file(h.root, cmd + "/pids.max", "4096");
    if (c == "cpu" && h.unified) write_file(h.root, cmd + "/cpu.max", "100000 100000");
    if (c == "cpu" && !h.unified) write_file(h.root, cmd + "/cpu.cfs_quota_us", "100000");
  }
}

void hand_down(const hierarchy& h, const std::string& group) {
  for (const auto& c : h.controllers)
    write_file(h.root, group + "/cgroup.subtree_control", "+" + c);
}

void make_unified(const hierarchy& h, unsigned aether_id, groups& out) {
  const auto top = make(h, out.name);
  hand_down(h, top);
  const auto init = make(h, top + "/init");
  const auto cmd = make(h, top + "/cmd");
  limit(h, cmd);
  const auto one = make(h, cmd + "/c");
  // Cloning into a group needs write permission on its cgroup.procs and the common ancestor's
  // (cgroups(7)).
  for (const auto& group : {top, one}) {
    const auto procs = group + "/cgroup.procs";
    must("chown", call(__NR_fchownat, h.root, procs.c_str(), 0, aether_id, 0));
    must("chmod", call(__NR_fchmodat, h.root, procs.c_str(), 0664));
  }
  out.init = open_file(h.root, init, O_RDONLY | O_DIRECTORY);
  out.command = open_file(h.root, one, O_RDONLY | O_DIRECTORY);
}

void remove_named(const std::string& name) {
  for (const auto& h : found) {
    for (const char* leaf : leaves) {
      const auto path = name + leaf;
      for (int tries = 0;
           ::unlinkat(h.root, path.c_str(), AT_REMOVEDIR) != 0 && errno == EBUSY && tries < 1000;
           ++tries)
        ::usleep(1000);
    }
  }
}

}  // namespace

void open_hierarchies() {
  std::ifstream mounts("/proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    const auto dash = line.find(" - ");
    const auto before = split(line.substr(0, dash), ' ');
    const auto after = split(line.substr(dash + 3), ' ');
    hierarchy h;
    if (after[0] == "cgroup2") {
      std::ifstream file(before[4] + "/cgroup.controllers");
      std::string names;
      std::getline(file, names);
      h.unified = true;
      h.controllers = only_wanted(split(names, ' '));
    } else if (after[0] == "cgroup") {
      h.controllers = only_wanted(split(after[2], ','));
      if (h.controllers.empty()) continue;
      h.flat = std::find(h.controllers.begin(), h.controllers.end(), "cpu") == h.controllers.end();
    } else {
      continue;
    }
    h.root = open_file(AT_FDCWD, before[4], O_RDONLY | O_DIRECTORY);
    if (h.unified) hand_down(h, ".");
    found.push_back(std::move(h));
  }
  if (std::none_of(found.begin(), found.end(), [](const auto& h) { return h.unified; }))
    give_up("no version 2 hierarchy is mounted", -ENOENT);
}

groups make_groups(const std::string& name, unsigned aether_id) {
  groups out;
  out.name = name;
  for (const auto& h : found) {
    if (h.unified) {
      make_unified(h, aether_id, out);
      continue;
    }
    const auto top = make(h, name);
    if (!h.flat) {
      const auto init = make(h, top + "/init");
      out.init_tasks.push_back(open_file(h.root, init + "/tasks", O_WRONLY));
    }
    const auto cmd = h.flat ? top : make(h, top + "/cmd");
    limit(h, cmd);
    out.command_tasks.push_back(open_file(h.root, cmd + "/tasks", O_WRONLY));
  }
  return out;
}

void close_groups(groups& g) {
  for (auto* tasks : {&g.init_tasks, &g.command_tasks}) {
    for (const int fd : *tasks) ::close(fd);
    tasks->clear();
  }
  for (int* fd : {&g.init, &g.command}) {
    if (*fd >= 0) ::close(*fd);
    *fd = -1;
  }
}

void remove_groups(groups& g) {
  close_groups(g);
  remove_named(g.name);
}

void remove_groups_like(const std::string& prefix) {
  std::vector<std::string> names;
  for (const auto& h : found) {
    DIR* list = ::fdopendir(open_file(h.root, ".", O_RDONLY | O_DIRECTORY));
    while (const auto* entry = list == nullptr ? nullptr : ::readdir(list)) {
      if (std::string_view(entry->d_name).starts_with(prefix)) names.emplace_back(entry->d_name);
    }
    if (list != nullptr) ::closedir(list);
  }
  for (const auto& name : names) remove_named(name);
}

}  // namespace floor_bench

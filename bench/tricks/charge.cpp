#include "tricks/charge.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "tricks/tricks.hpp"

namespace tricks {

int open_beside(int file, const char* name, int flags) {
  char path[4096];
  const auto link = "/proc/self/fd/" + std::to_string(file);
  const auto n = must("readlink", call(__NR_readlink, link.c_str(), path, sizeof path));
  const std::string own(path, static_cast<std::size_t>(n));
  const auto other = own.substr(0, own.rfind('/') + 1) + name;
  return static_cast<int>(call(__NR_openat, AT_FDCWD, other.c_str(), flags | O_CLOEXEC, 0));
}

charge::charge() {
  const groups g = make_groups(next_name(), aether_id);
  // Version 2 has the limits of commands one group up.
  usage_ =
      static_cast<int>(call(__NR_openat, g.command, "../memory.current", O_RDONLY | O_CLOEXEC, 0));
  if (usage_ >= 0) join_ = open_at(g.command, "cgroup.procs", O_WRONLY);
  for (const int tasks : g.command_tasks) {
    if (usage_ >= 0) break;
    usage_ = open_beside(tasks, "memory.usage_in_bytes", O_RDONLY);
    join_ = tasks;
  }
  if (usage_ < 0) give_up("no memory controller", -ENOENT);
}

void charge::begin() const {
  must("charge", call(__NR_write, join_, "0", 1));
}

double charge::kib() const {
  char text[32] = {};
  must("usage", call(__NR_pread64, usage_, text, sizeof text - 1, 0));
  return std::strtod(text, nullptr) / 1024;
}

}  // namespace tricks

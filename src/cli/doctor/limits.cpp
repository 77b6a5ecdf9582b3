// How much the host allows, against what node.max_sandboxes sandboxes need. One table; numbers are
// read, since reaching them would take the host's last ones.
#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>

#include "backends/sys/file.hpp"
#include "cli/doctor/capability.hpp"
#include "cli/open_files.hpp"

namespace dsec::cli::doctor {
namespace {

using base::errc;
using base::fail;
using base::result;

struct limit {
  const char* name;
  std::uint64_t fixed, per_sandbox;
  std::uint64_t recommended;  // what `mend` sets; 0 = what is needed
};

// An idle sandbox has three tasks (aether, spawner, and the group of a command's first process is
// about to have one); a shell and what it runs are some more.
constexpr std::uint64_t tasks = 8, tasks_of_the_host = 8192;
// Slots that are ready and those being removed have namespaces, too.
constexpr std::uint64_t spare_namespaces = 256;

constexpr limit sysctls[] = {
    {"kernel.pid_max", tasks_of_the_host, tasks, 4'194'304},
    {"kernel.threads-max", tasks_of_the_host, tasks, 0},
    {"user.max_user_namespaces", spare_namespaces, 2, 65'536},
    {"user.max_mnt_namespaces", spare_namespaces, 2, 65'536},
    {"user.max_pid_namespaces", spare_namespaces, 1, 65'536},
    {"user.max_net_namespaces", spare_namespaces, 1, 65'536},
    {"user.max_uts_namespaces", spare_namespaces, 1, 65'536},
    {"user.max_ipc_namespaces", spare_namespaces, 1, 65'536},
    // The next ones bound what one user or one namespace has, and each sandbox has its own.
    {"fs.mount-max", 4096, 0, 100'000},
    {"fs.inotify.max_user_instances", 128, 0, 1024},
    {"fs.inotify.max_user_watches", 65'536, 0, 524'288},
    {"vm.max_map_count", 65'530, 0, 0},
};

result<std::uint64_t> read_sysctl(std::string name) {
  for (char& c : name) c = c == '.' ? '/' : c;
  DSEC_TRY(const auto text, sys::read_file("/proc/sys/" + name));
  std::uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec != std::errc()) return fail(errc::internal, "/proc/sys/" + name + " is no number");
  return value;
}

result<std::string> compare(std::uint64_t value, std::uint64_t needed) {
  auto text = std::to_string(value) + ", " + std::to_string(needed) + " needed";
  if (value < needed) return fail(errc::capacity, std::move(text));
  return text;
}

std::string room(std::uint64_t value, const limit& l) {
  if (l.per_sandbox == 0) return "sandboxes, but programs in them that need more of it fail";
  const auto n = value < l.fixed ? 0 : (value - l.fixed) / l.per_sandbox;
  return "about " + std::to_string(n) + " sandboxes";
}

finding judge_sysctl(const limit& l, std::uint64_t sandboxes) {
  const auto needed = l.fixed + l.per_sandbox * sandboxes;
  const auto value = read_sysctl(l.name);
  const auto target = std::max(l.recommended, needed);
  return judge(
      {"limits", l.name, false, std::string("sysctl -w ") + l.name + "=" + std::to_string(target),
       room(value.value_or(0), l)},
      value ? compare(*value, needed) : result<std::string>(fail(value.error())));
}

finding judge_open_files(std::uint64_t sandboxes) {
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  const limit l{"open files", own_files, files_of_a_sandbox, 0};
  const auto needed = l.fixed + l.per_sandbox * sandboxes;
  return judge({"limits", l.name, false,
                "LimitNOFILE=" + std::to_string(std::max<std::uint64_t>(1'048'576, needed)) +
                    " in its unit, or ulimit -n before dsecd serve",
                room(files.rlim_max, l)},
               compare(files.rlim_max, needed));
}

}  // namespace

findings look_at_limits(const place& p) {
  const std::uint64_t sandboxes = p.config.node.max_sandboxes;
  findings all{judge_open_files(sandboxes)};
  for (const auto& l : sysctls) all.push_back(judge_sysctl(l, sandboxes));
  return all;
}

}  // namespace dsec::cli::doctor

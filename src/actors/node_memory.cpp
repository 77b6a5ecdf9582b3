#include "actors/node_memory.hpp"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "backends/sys/file.hpp"
#include "backends/sys/mountinfo.hpp"

namespace dsec::actors {
namespace {

namespace fsys = std::filesystem;
using base::errc;
using base::fail;

std::optional<std::uint64_t> number(std::string_view text) {
  std::uint64_t value = 0;
  const auto begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data() + begin, text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  return value;
}

/// The number behind `key` at the start of a line ("MemTotal:  123 kB", "inactive_file 123").
std::optional<std::uint64_t> line_value(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    if (line.starts_with(key)) return number(line.substr(key.size()));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
  }
  return std::nullopt;
}

std::optional<std::uint64_t> file_number(const fsys::path& file) {
  const auto text = sys::read_file(file);
  return text ? number(*text) : std::nullopt;  // "max" is no number: no limit
}

struct group_files {
  const char* limit;
  const char* usage;
  const char* reclaimable;  // key in memory.stat: page cache that goes first
};
constexpr group_files v1{"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "};
constexpr group_files v2{"memory.max", "memory.current", "inactive_file "};

void bound_by(const fsys::path& group, const group_files& files, memory_reading& reading) {
  const auto limit = file_number(group / files.limit);
  const auto usage = file_number(group / files.usage);
  if (!limit || !usage || *limit >= reading.total) return;
  const auto stat = sys::read_file(group / "memory.stat");
  const auto cache = stat ? line_value(*stat, files.reclaimable).value_or(0) : 0;
  const auto used = *usage - std::min(*usage, cache);
  reading.total = *limit;
  reading.available = std::min(reading.available, *limit - std::min(*limit, used));
}

/// The group and all above it: a limit counts wherever it stands (cgroups(7)).
void bound_by_tree(const fsys::path& mount, std::string own, const group_files& files,
                   memory_reading& reading) {
  while (!own.empty() && own != "/") {
    bound_by(mount / own.substr(1), files, reading);
    own.resize(own.rfind('/'));
  }
  bound_by(mount, files, reading);
}

bool holds(const std::vector<std::string>& list, std::string_view what) {
  return std::find(list.begin(), list.end(), what) != list.end();
}

void bound_by_own_groups(const fsys::path& root, memory_reading& reading) {
  const auto mounts = sys::read_file(root / "proc/self/mountinfo");
  const auto own = sys::read_file(root / "proc/self/cgroup");
  if (!mounts || !own) return;  // no control groups: nothing that could bound us
  for (const auto& group : sys::parse_membership(*own)) {
    const bool unified = group.hierarchy == 0;
    if (!unified && !holds(group.controllers, "memory")) continue;
    for (const auto& m : sys::parse_mountinfo(*mounts)) {
      const bool here =
          unified ? m.type == "cgroup2" : m.type == "cgroup" && holds(m.super_options, "memory");
      if (!here || m.mount_point.empty()) continue;
      bound_by_tree(root / m.mount_point.substr(1), group.path, unified ? v2 : v1, reading);
      break;
    }
  }
}

}  // namespace

base::result<memory_reading> read_node_memory(const fsys::path& root) {
  DSEC_TRY(const auto text, sys::read_file(root / "proc/meminfo"));
  const auto total = line_value(text, "MemTotal:");
  const auto available = line_value(text, "MemAvailable:");
  if (!total || !available)
    return fail(errc::internal, "/proc/meminfo has no MemTotal or MemAvailable");
  memory_reading reading{*total * 1024, *available * 1024};
  bound_by_own_groups(root, reading);
  return reading;
}

}  // namespace dsec::actors

#include "backends/sys/mountinfo.hpp"

#include <charconv>
#include <optional>

namespace dsec::sys {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const auto end = text.find(separator);
    if (end != 0) parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return parts;
}

/// The kernel writes blanks and backslashes in names as \ooo.
std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const char* digits = text.data() + i + 1;
    if (text[i] == '\\' && i + 3 < text.size() &&
        std::from_chars(digits, digits + 3, value, 8).ptr == digits + 3) {
      out += static_cast<char>(value);
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::vector<std::string> strings(std::string_view text, char separator) {
  std::vector<std::string> out;
  for (const auto part : split(text, separator)) out.emplace_back(part);
  return out;
}

std::optional<mount_entry> parse_mount(std::string_view line) {
  const auto separator = line.find(" - ");
  if (separator == std::string_view::npos) return std::nullopt;
  const auto before = split(line.substr(0, separator), ' ');
  const auto behind = split(line.substr(separator + 3), ' ');
  if (before.size() < 6 || behind.size() < 3) return std::nullopt;
  return mount_entry{unescape(before[3]), unescape(before[4]), std::string(behind[0]),
                     unescape(behind[1]), strings(behind[2], ',')};
}

std::optional<cgroup_membership> parse_group(std::string_view line) {
  const auto first = line.find(':');
  const auto second = line.find(':', first == std::string_view::npos ? first : first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  cgroup_membership group;
  if (std::from_chars(line.data(), line.data() + first, group.hierarchy).ec != std::errc{})
    return std::nullopt;
  const auto controllers = line.substr(first + 1, second - first - 1);
  if (controllers.substr(0, 5) != "name=") group.controllers = strings(controllers, ',');
  group.path = line.substr(second + 1);
  return group;
}

}  // namespace

std::vector<mount_entry> parse_mountinfo(std::string_view text) {
  std::vector<mount_entry> mounts;
  for (const auto line : split(text, '\n')) {
    if (auto mount = parse_mount(line)) mounts.push_back(std::move(*mount));
  }
  return mounts;
}

std::vector<cgroup_membership> parse_membership(std::string_view text) {
  std::vector<cgroup_membership> groups;
  for (const auto line : split(text, '\n')) {
    if (auto group = parse_group(line)) groups.push_back(std::move(*group));
  }
  return groups;
}

}  // namespace dsec::sys

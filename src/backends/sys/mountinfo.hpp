// Reads the text of /proc/<pid>/mountinfo and /proc/<pid>/cgroup (proc(5), cgroups(7)). Pure, any
// thread; lines that do not have the documented form are skipped.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dsec::sys {

struct mount_entry {
  std::string root;         // what of the file system is mounted
  std::string mount_point;  // unescaped
  std::string type;
  std::string source;
  std::vector<std::string> super_options;
};
std::vector<mount_entry> parse_mountinfo(std::string_view text);

struct cgroup_membership {
  int hierarchy = 0;                     // 0: version 2
  std::vector<std::string> controllers;  // empty for version 2 and named hierarchies
  std::string path;
};
std::vector<cgroup_membership> parse_membership(std::string_view text);

}  // namespace dsec::sys

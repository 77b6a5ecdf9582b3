// What `dsecd doctor` looks at: one function per area, in a file of its own, each capability found
// by doing it. Everything blocks and runs on the main thread, as root. Nothing is left behind: what
// is mounted is mounted in a process of its own (apart.hpp), what lies on disk lies in the scratch
// directory, groups and sandboxes belong to an instance of the doctor's own.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/result.hpp"

namespace dsec::cli::doctor {

struct capability {
  std::string area, name;
  bool needed = false;  // without it no sandbox starts, or no image can be had
  std::string mend;     // the command, or what else to do
  std::string without;  // what works all the same
};

struct finding {
  capability what;
  bool have = false;
  std::string detail;  // how it was found, or why it is lacking
};
using findings = std::vector<finding>;

/// What the areas work with. `node` has names and user ids that no running dsecd uses.
struct place {
  base::config config;  // what the host is judged for
  base::node_config node;
  std::filesystem::path scratch;  // empty, on the file system of the state directory
};

finding judge(capability what, const base::result<std::string>& found);

findings look_at_sandboxes(const place& p);     // what the container backend cannot do without
findings look_at_groups(const place& p);        // what control groups can do besides
findings look_at_file_systems(const place& p);  // EROFS, overlayfs, mapped ids, FUSE
findings look_at_limits(const place& p);        // how many of what
findings look_at_memory(const place& p);        // who dies first, and what can be given back
findings look_at_devices(const place& p);
findings look_at_tools(const place& p);

}  // namespace dsec::cli::doctor

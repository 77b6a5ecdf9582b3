// Ready control groups for the floor's sandboxes, on version 1, version 2 or both, as the host has
// them.
#pragma once

#include <string>
#include <vector>

namespace floor_bench {

struct groups {
  int init = -1;                // version 2: aether is cloned into it
  int command = -1;             // version 2: the command is
  std::vector<int> init_tasks;  // version 1 `tasks` files: they write "0" themselves
  std::vector<int> command_tasks;
};

/// Makes <root>/<name>/{init,cmd/c} in every hierarchy that has cpu, memory or pids and in version
/// 2's, limits set as for a sandbox of 256 MiB; aether's gid may clone into the command group.
groups make_groups(const std::string& name, unsigned aether_id);
void remove_groups();

}  // namespace floor_bench

// Ready control groups for the floor's sandboxes, on version 1, version 2 or both, as the host has
// them.
#pragma once

#include <string>
#include <vector>

namespace floor_bench {

struct groups {
  std::string name;
  int init = -1;                // version 2: aether is cloned into it
  int command = -1;             // version 2: the command is
  std::vector<int> init_tasks;  // version 1 `tasks` files: they write "0" themselves
  std::vector<int> command_tasks;
};

/// Finds and opens every hierarchy that has cpu, memory or pids, and version 2's. Once, where the
/// host's mounts are seen; the calls below work in any mount namespace.
void open_hierarchies();

/// Makes <root>/<name>/{init,cmd/c} in all of them, or <root>/<name> alone where aether needs no
/// share of its own; limits set as for a sandbox of 256 MiB. aether's gid may clone into the
/// command group.
groups make_groups(const std::string& name, unsigned aether_id);
/// aether holds its own; a sandbox that lives on needs no descriptor here.
void close_groups(groups& g);
/// Closes and removes them, waiting for processes that are just leaving.
void remove_groups(groups& g);
/// Whatever is left of groups whose name begins so.
void remove_groups_like(const std::string& prefix);

}  // namespace floor_bench

// One sandbox as the container backend makes it, with nothing between the system calls.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "floor/groups.hpp"

namespace floor_bench {

/// What is made ahead, as a pool would: namespaces and the directory of the writable layer.
struct slot {
  int user = -1, net = -1, uts = -1, ipc = -1;
  std::string home;
};

struct sandbox {
  int pid = -1, channel = -1;
};

inline constexpr unsigned id_base = 1'600'000'000;    // first host uid of the range
inline constexpr unsigned aether_id = 1'700'000'000;  // aether's uid and gid, not mapped inside

/// Puts this process's descriptors in order, for at most `most` sandboxes alive at once. Before
/// anything else.
void prepare_process(int most);
/// Enters a mount namespace of this process's own that holds only the layers (bottom first), the
/// skeleton and `disk`, the directory of the writable layers.
void prepare(const std::string& disk, const std::vector<std::string>& layers);

slot make_slot(const std::string& name);
/// Closes the namespaces, which a sandbox that was made in them keeps.
void drop_slot(slot& s);
/// Deletes the directory of its writable layer.
void remove_home(const slot& s);

/// From nothing to the result of `program`; ends the process when that is not 0.
sandbox create(const slot& s, const groups& g, const char* program);

/// A PID 1 made ahead as far as no layer is needed for it: cloned, in its groups and namespaces,
/// its own file systems made. One at a time.
struct plan;
struct parked {
  sandbox init;
  std::shared_ptr<plan> shared;
};
/// Slot and groups must outlive it.
parked park(const slot& s, const groups& g, const char* program);
/// The rest of the create, to the result of the program.
sandbox create(const parked& waiting);

void destroy(sandbox& s);

}  // namespace floor_bench

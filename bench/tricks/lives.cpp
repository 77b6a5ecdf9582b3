// When the parts of a sandbox are made and removed (tricks.hpp). Each step is a whole create, to
// the result of its command, or the removal of what one has left.
#include <unistd.h>

#include <cstdio>

#include "tricks/tricks.hpp"

namespace tricks {
namespace {

std::vector<slot> leavings;

groups& common_groups() {
  static groups g = make_groups(next_name(), aether_id);
  return g;
}

/// Homes are deleted in the end: a file system is slow to give out what was just given back.
void end(sandbox& made, slot& s) {
  destroy(made);
  drop_slot(s);
  leavings.push_back(s);
}

}  // namespace

/// With: PID 1 waits in its groups and namespaces with /proc, /dev/pts and /dev/shm made; it is
/// told the root. Without: it is cloned when the create is asked for.
double parked_init(bool with) {
  groups& g = common_groups();
  slot s = make_slot(next_name());
  parked waiting;
  if (with) waiting = park(s, g, given.program);
  const double began = now_ms();
  sandbox made = with ? create(waiting) : create(s, g, given.program);
  const double took = now_ms() - began;
  end(made, s);
  return took;
}

/// User, net, uts and ipc namespace and the writable layer's directory.
double slots_ahead(bool with) {
  groups& g = common_groups();
  slot s;
  if (with) s = make_slot(next_name());
  const double began = now_ms();
  if (!with) s = make_slot(next_name());
  sandbox made = create(s, g, given.program);
  const double took = now_ms() - began;
  end(made, s);
  return took;
}

double groups_ahead(bool with) {
  slot s = make_slot(next_name());
  groups g;
  if (with) g = make_groups(next_name(), aether_id);
  const double began = now_ms();
  if (!with) g = make_groups(next_name(), aether_id);
  sandbox made = create(s, g, given.program);
  const double took = now_ms() - began;
  end(made, s);
  remove_groups(g);
  return took;
}

/// The writable layer of a sandbox that has ended. With: renamed away. Without: deleted.
double trash(bool with) {
  slot s = make_slot(next_name());
  sandbox made = create(s, common_groups(), given.program);
  destroy(made);
  drop_slot(s);
  const std::string away = s.home + ".away";
  const double began = now_ms();
  if (with)
    must("rename", call(__NR_rename, s.home.c_str(), away.c_str()));
  else
    remove_home(s);
  const double took = now_ms() - began;
  if (with) {
    s.home = away;
    leavings.push_back(s);
  }
  return took;
}

void remove_leavings() {
  for (const slot& s : leavings) remove_home(s);
}

}  // namespace tricks

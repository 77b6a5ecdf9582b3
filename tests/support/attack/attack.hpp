// What root inside a sandbox may try. Each attack prints a line per attempt that succeeded ("hole:
// …") and answers how many did; what was tried and denied is counted on the last line. Runs inside,
// as any user; static, needs no image.
#pragma once

#include <string>

namespace dsec::attack {

/// Notes one attempt: `outcome` < 0 with errno set is a denial.
void attempt(const std::string& what, long outcome);
/// An attempt that worked although it must not.
void hole(const std::string& what);
int holes();
int denials();

void attack_init();  // aether, which is process 1
void attack_reboot();
void attack_mounts();  // what the platform mounted
void attack_groups();  // control groups, its own and others'

/// Loops for so many seconds; they end by being killed most of the time.
void loop_signal(int signal, int seconds);
void fork_bomb(int seconds);
/// Takes an exclusive lock on its stdin ("locked", else "busy") and keeps it.
void lock_stdin(int seconds);
/// Uses all CPU time it gets.
void spin(int seconds);
/// Opens terminals until no more can be had, says how many it got ("ptys N") and keeps them.
void hold_ptys(int seconds);
/// Touches so many MiB; `hold` keeps them until killed.
void eat_memory(int mib, bool hold);

}  // namespace dsec::attack

// What root inside a sandbox may try. Each attack prints a line per attempt that succeeded ("hole:
// …") and answers how many did; what was tried and refused is counted on the last line. Runs
// inside, as any user; static, needs no image.
#pragma once

#include <string>

namespace dsec::attack {

/// Notes one attempt: `outcome` < 0 with errno set. A denial is a refusal (EPERM, EACCES, EINVAL,
/// EBUSY, ESRCH, EROFS); where the thing does not exist (ENOENT, ENOSYS …) nothing was tried.
void attempt(const std::string& what, long outcome);
/// An attempt that worked although it must not.
void hole(const std::string& what);
/// What the attack needs is not there: the whole of it counts as failed.
void untried(const std::string& what);
int holes();
int denials();

/// Seconds of a clock that only goes forward.
long now();

void attack_init();  // aether, which is process 1
void attack_reboot();
void attack_mounts();  // what the platform mounted
void attack_groups();  // control groups, its own and others'

/// Mounts its group of version 2 where attack_groups() of another command finds it, says "offered"
/// and stays.
void offer_group(int seconds);
/// A shell script in a control group namespace of its own.
int run_in_group_namespace(const char* script);

/// Loops for so many seconds; they end by being killed most of the time.
void loop_signal(int signal, int seconds);
void fork_bomb(int seconds);
/// Takes an exclusive lock on its stdin ("locked", else "busy") and keeps it.
void lock_stdin(int seconds);
/// Uses all CPU time it gets.
void spin(int seconds);
/// Opens terminals until no more can be had, says how many it got ("ptys N") and keeps them.
void hold_ptys(int seconds);
/// Makes processes of one kind, says "ready" and stays: `daemon` (double fork), `session`,
/// `stopped`, `traced`, `vfork`.
void start_family(const char* kind);
/// Says "ready" when so many processes stand, each of which then makes the next and ends, and so
/// on.
void start_relays(int chains, int seconds);
/// Touches so many MiB; `hold` keeps them until killed.
void eat_memory(int mib, bool hold);

}  // namespace dsec::attack

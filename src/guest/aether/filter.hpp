// The system call filters. `load_sandbox_filter` is loaded once by the spawner and inherited by
// every command; `load_command_filter` is the short one that each command adds. Both answer -errno,
// and need CAP_SYS_ADMIN in the caller's user namespace (no_new_privs is not set, so that setuid
// programs inside keep working: seccomp(2)).
#pragma once

namespace dsec::guest::aether {

long load_sandbox_filter();
long load_command_filter();

}  // namespace dsec::guest::aether

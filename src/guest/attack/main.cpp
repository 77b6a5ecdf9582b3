// attack NAME [ARGUMENT]…: see attack.hpp. Besides: `say TEXT` prints, `exit N` exits, `copy`
// copies stdin to stdout.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cerrno>

#include "attack.hpp"

namespace dsec::attack {
namespace {

int hole_count = 0, denial_count = 0, untried_count = 0;

int report() {
  printf("holes %d denied %d\n", hole_count, denial_count);
  return hole_count + untried_count == 0 ? 0 : 1;
}

int run_checks(const std::string& name) {
  if (name == "init")
    attack_init();
  else if (name == "reboot")
    attack_reboot();
  else if (name == "mounts")
    attack_mounts();
  else if (name == "groups")
    attack_groups();
  else
    return 2;
  return report();
}

int copy() {
  char buffer[65536];
  for (ssize_t n = 0; (n = read(0, buffer, sizeof buffer)) > 0;) {
    if (write(1, buffer, static_cast<size_t>(n)) != n) return 1;
  }
  return 0;
}

int run(const std::string& name, const char* argument) {
  const int number = argument == nullptr ? 0 : static_cast<int>(strtol(argument, nullptr, 10));
  if (name == "say") return puts(argument) < 0;
  if (name == "exit") return number;
  if (name == "copy") return copy();
  if (name == "stop-all") return loop_signal(SIGSTOP, number), 0;
  if (name == "kill-all") return loop_signal(SIGKILL, number), 0;
  if (name == "fork-bomb") return fork_bomb(number), 0;
  if (name == "ptys") return hold_ptys(number), 0;
  if (name == "lock-stdin") return lock_stdin(number), 0;
  if (name == "offer-group") return offer_group(number), 0;
  if (name == "in-group-namespace") return run_in_group_namespace(argument);
  if (name == "family") return start_family(argument), 0;
  if (name == "relays") return start_relays(number, 60), 0;
  if (name == "spin") return spin(number), 0;
  if (name == "memory" || name == "hold") return eat_memory(number, name == "hold"), 0;
  return run_checks(name);
}

}  // namespace

void attempt(const std::string& what, long outcome) {
  if (outcome >= 0) return hole(what + " (returned " + std::to_string(outcome) + ")");
  bool denied = false;
  for (const int refusal : {EPERM, EACCES, EINVAL, EBUSY, ESRCH, EROFS})
    denied = denied || errno == refusal;
  denial_count += denied ? 1 : 0;
  printf("%s: %s: %s\n", denied ? "denied" : "moot", what.c_str(), strerror(errno));
}

void untried(const std::string& what) {
  ++untried_count;
  printf("untried: %s\n", what.c_str());
}

void hole(const std::string& what) {
  ++hole_count;
  printf("hole: %s\n", what.c_str());
}

int holes() {
  return hole_count;
}
int denials() {
  return denial_count;
}

}  // namespace dsec::attack

int main(int argc, char** argv) {
  setvbuf(stdout, nullptr, _IOLBF, 0);
  if (argc < 2) return 2;
  return dsec::attack::run(argv[1], argc > 2 ? argv[2] : nullptr);
}

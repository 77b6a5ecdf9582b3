// Attacks that never stop by themselves.
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "attack.hpp"

namespace dsec::attack {

long now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec;
}

void loop_signal(int number, int seconds) {
  signal(SIGTERM, SIG_IGN);
  for (const long until = now() + seconds; now() < until;)
    kill(-1, number);  // all but itself and process 1
}

void fork_bomb(int seconds) {
  const long until = now() + seconds;
  while (now() < until) {
    if (fork() < 0) usleep(100);
  }
}

void lock_stdin(int seconds) {
  puts(flock(0, LOCK_EX | LOCK_NB) == 0 ? "locked" : "busy");
  for (const long until = now() + seconds; now() < until;) sleep(1);
}

void spin(int seconds) {
  for (const long until = now() + seconds; now() < until;) {
  }
}

void hold_ptys(int seconds) {
  const long until = now() + seconds;
  int got = 0;
  while (open("/dev/ptmx", O_RDWR | O_NOCTTY) >= 0) ++got;
  printf("ptys %d\n", got);
  fflush(stdout);
  while (now() < until) sleep(1);
}

void eat_memory(int mib, bool hold) {
  const size_t size = static_cast<size_t>(mib) << 20U;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) exit(3);
  memset(memory, 1, size);
  if (!hold) return;
  for (;;) pause();
}

}  // namespace dsec::attack

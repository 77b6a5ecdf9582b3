// Processes that are hard to get hold of one by one.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attack.hpp"

namespace dsec::attack {
namespace {

/// In a process of its own; the caller goes on.
template <class F>
pid_t apart(F&& what) {
  const pid_t pid = fork();
  if (pid != 0) return pid;
  what();
  _exit(0);
}

int arrivals[2];  // a pipe

/// The last of a family is where it is to stay.
void arrive() {
  [[maybe_unused]] const ssize_t n = write(arrivals[1], "x", 1);
  for (const int end : arrivals) close(end);
}

[[noreturn]] void linger() {
  while (true) pause();
}

/// Nobody's child, in a session of its own, without a descriptor.
void daemonise() {
  apart([] {
    setsid();
    apart([] {
      for (int fd = 0; fd < 3; ++fd) close(fd);
      arrive();
      linger();
    });
  });
}

void leave_session() {
  apart([] {
    setsid();
    arrive();
    linger();
  });
}

void stop_one() {
  const pid_t child = apart([] {
    raise(SIGSTOP);
    linger();
  });
  waitpid(child, nullptr, WUNTRACED);
  apart(arrive);
}

/// A tracer that keeps its child stopped and looks at nothing.
void trace_one() {
  apart([] {
    const pid_t child = apart([] {
      ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
      raise(SIGSTOP);
      linger();
    });
    waitpid(child, nullptr, WUNTRACED);
    arrive();
    linger();
  });
}

/// Waits uninterruptibly for a child that does not execute anything.
void suspend_in_vfork() {
  apart([] {
    // What is wrong with it is why it is here.
    // NOLINTBEGIN(bugprone-unsafe-functions,clang-analyzer-security.*,clang-analyzer-unix.Vfork)
    const pid_t child = vfork();
    if (child == 0) {
      arrive();
      linger();
    }
    // NOLINTEND(bugprone-unsafe-functions,clang-analyzer-security.*,clang-analyzer-unix.Vfork)
    _exit(0);
  });
}

/// A chain of processes of which each makes the next and ends, so that no list of them is true for
/// long.
void run_relay(long until) {
  while (now() < until) {
    const pid_t next = fork();
    if (next > 0) _exit(0);
    if (next < 0) usleep(1000);
  }
}

}  // namespace

void start_family(const char* kind) {
  signal(SIGHUP, SIG_IGN);
  signal(SIGTERM, SIG_IGN);
  if (pipe(arrivals) != 0) _exit(1);
  if (strcmp(kind, "daemon") == 0) daemonise();
  if (strcmp(kind, "session") == 0) leave_session();
  if (strcmp(kind, "stopped") == 0) stop_one();
  if (strcmp(kind, "traced") == 0) trace_one();
  if (strcmp(kind, "vfork") == 0) suspend_in_vfork();
  char byte = 0;
  if (read(arrivals[0], &byte, 1) != 1) _exit(1);
  puts("ready");
  fflush(stdout);
  linger();
}

void start_relays(int chains, int seconds) {
  const long until = now() + seconds;
  int gate[2];
  if (pipe(gate) != 0) _exit(1);
  for (int i = 0; i < chains && now() < until;) {
    const pid_t first = fork();
    if (first == 0) {
      char nothing = 0;
      close(gate[1]);
      if (read(gate[0], &nothing, 1) == 0) run_relay(until);  // all at once
      _exit(0);
    }
    if (first > 0) ++i;
    if (first < 0) usleep(1000);
  }
  puts("ready");
  fflush(stdout);
  close(gate[1]);
  while (now() < until) sleep(1);
}

}  // namespace dsec::attack

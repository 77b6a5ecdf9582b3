// Stands in for aether in the launcher's tests: started by the launcher with the same descriptors
// and credentials, it shows what it sees and runs programs as root inside. One request datagram on
// the channel, one reply:
//   'b'          the boot datagram as it came
//   'S'          /proc/self/status, then "fds:" and its open descriptors
//   's' SCRIPT   /bin/busybox sh -c SCRIPT      'x' PATH   that program
//                reply: int32 wait status, then what it printed (at most 60,000 bytes)
//   'q' CODE     exits
// The end of the channel ends it with status 0, as it does aether.
#include <fcntl.h>
#include <grp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "guest/channel.hpp"

namespace {

using namespace dsec::guest;

char boot_datagram[256];
ssize_t boot_size;
char request[65536];
char reply[65536];

[[noreturn]] void run_inside(const char* path, const char* script, int out) {
  const auto* boot = reinterpret_cast<const boot_body*>(boot_datagram + sizeof(header));
  for (unsigned i = 0; i < boot->tasks_count; ++i) {
    if (write(fd_tasks + static_cast<int>(i), "0", 1) != 1) _exit(120);
  }
  dup2(out, 1);
  dup2(out, 2);
  if (setns(fd_userns, CLONE_NEWUSER) != 0) _exit(121);
  if (syscall(SYS_setresgid, 0, 0, 0) != 0 || setgroups(0, nullptr) != 0 ||
      syscall(SYS_setresuid, 0, 0, 0) != 0)
    _exit(122);
  setsid();
  syscall(SYS_close_range, 3, ~0U, 0);
  char* const envp[] = {const_cast<char*>("PATH=/bin"), nullptr};
  char* const shell[] = {const_cast<char*>("busybox"), const_cast<char*>("sh"),
                         const_cast<char*>("-c"), const_cast<char*>(script), nullptr};
  char* const plain[] = {const_cast<char*>(path), nullptr};
  execve(path, script == nullptr ? plain : shell, envp);
  _exit(127);
}

size_t run(const char* path, const char* script) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) exit(100);
  fchmod(pipe_ends[1], 0666);  // else /dev/stderr cannot be opened inside: its owner is not mapped
  const pid_t child = fork();
  if (child < 0) exit(101);
  if (child == 0) run_inside(path, script, pipe_ends[1]);
  close(pipe_ends[1]);
  size_t size = sizeof(int);
  for (ssize_t n = 1; n > 0 && size < 60000;) {
    n = read(pipe_ends[0], reply + size, 60000 - size);
    if (n > 0) size += static_cast<size_t>(n);
  }
  close(pipe_ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  memcpy(reply, &status, sizeof status);
  return size;
}

size_t show_self() {
  const int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  const ssize_t n = read(file, reply, 30000);
  close(file);
  size_t size = n > 0 ? static_cast<size_t>(n) : 0;
  size += static_cast<size_t>(sprintf(reply + size, "fds:"));
  for (int i = 0; i < 1024; ++i) {
    if (fcntl(i, F_GETFD) >= 0) size += static_cast<size_t>(sprintf(reply + size, " %d", i));
  }
  return size;
}

size_t answer(char kind, const char* text) {
  switch (kind) {
    case 'b':
      memcpy(reply, boot_datagram, static_cast<size_t>(boot_size));
      return static_cast<size_t>(boot_size);
    case 'S':
      return show_self();
    case 's':
      return run("/bin/busybox", text);
    case 'x':
      return run(text, nullptr);
    case 'q':
      exit(text[0]);
    default:
      exit(102);
  }
}

}  // namespace

int main() {
  // Started with nothing at 0, 1 and 2: what is opened later must not land there.
  while (open("/dev/null", O_RDWR | O_CLOEXEC) < 2) {
  }
  boot_size = recv(fd_channel, boot_datagram, sizeof boot_datagram, 0);
  if (boot_size <= 0) return 103;
  for (;;) {
    const ssize_t n = recv(fd_channel, request, sizeof request - 1, 0);
    if (n <= 0) return 0;
    request[n] = '\0';
    if (send(fd_channel, reply, answer(request[0], request + 1), MSG_NOSIGNAL) < 0) return 0;
  }
}

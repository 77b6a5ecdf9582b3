// The floor under create_exec and exec_rtt: what the kernel itself takes for the same work. Prints
// one figure per line, in milliseconds, after a warm-up. Needs root.
//   floor create COUNT DISK PROGRAM LAYER...   sandbox made -> PROGRAM's result, in a sandbox of
//                                              these EROFS layers (bottom first) with its writable
//                                              layer below the directory DISK
//   floor spawn COUNT PROGRAM [ARGUMENT...]    bare vfork + exec + wait on the host
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "floor/kernel.hpp"
#include "floor/sandbox.hpp"

namespace floor_bench {
namespace {

constexpr int warm_up = 5;
constexpr int first_free_fd = 32;  // below are aether's
// Keeps the descriptor table of every child large enough: growing one that is shared (CLONE_FILES)
// waits for a grace period of RCU, 10 ms and more (expand_fdtable in the kernel's fs/file.c).
constexpr int high_fd = 255;

double now() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) / 1e6;
}

/// aether's program from beside this one, in a sealed memory file.
int load_aether() {
  char self[4096];
  const auto n = ::readlink("/proc/self/exe", self, sizeof self - 1);
  const auto path = std::string(self, static_cast<std::size_t>(n)) + "_aether";
  const int file = open_at(AT_FDCWD, path.c_str(), O_RDONLY);
  struct stat info {};
  ::fstat(file, &info);
  const int memory = ::memfd_create("aether", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (::sendfile(memory, file, nullptr, static_cast<std::size_t>(info.st_size)) != info.st_size) {
    give_up("copy aether", -5);
  }
  ::fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  const auto link = "/proc/self/fd/" + std::to_string(memory);
  const int readable =
      open_at(AT_FDCWD, link.c_str(), O_RDONLY);  // a file open for writing cannot be executed
  ::close(memory);
  ::close(file);
  return readable;
}

int create_loop(int count, const std::string& disk, const char* program,
                const std::vector<std::string>& layers) {
  for (int fd = 3; fd < first_free_fd; ++fd) {
    if (::fcntl(fd, F_GETFD) < 0) ::dup3(open_at(AT_FDCWD, "/dev/null", O_RDWR), fd, O_CLOEXEC);
  }
  const std::string name = "floor-" + std::to_string(::getpid());
  ::dup3(first_free_fd - 1, high_fd, O_CLOEXEC);
  ready.aether = load_aether();
  const groups g = make_groups(name, aether_id);
  if (const int worker = ::fork(); worker == 0) {
    // A child, so that the groups are removed by the parent whatever happens, in the host's mount
    // namespace.
    prepare(disk, layers);
    for (int i = -warm_up; i < count; ++i) {
      slot s = make_slot(std::to_string(i + warm_up));
      const double began = now();
      sandbox made = create(s, g, program);
      const double took = now() - began;
      destroy(made);
      drop_slot(s);
      if (i >= 0) std::printf("%.4f\n", took);
    }
    remove_homes();
    std::fflush(stdout);
    ::_exit(0);
  } else {
    int status = 0;
    ::waitpid(worker, &status, 0);
    remove_groups();
    return status == 0 ? 0 : 1;
  }
}

int exec_program(void* argument) {
  auto** argv = static_cast<char**>(argument);
  const char* const envp[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", nullptr};
  call(__NR_execve, argv[0], argv, envp);
  return 127;
}

int spawn_loop(int count, char** argv) {
  for (int i = -warm_up; i < count; ++i) {
    const double began = now();
    const long pid = start_child(0, 0, -1, exec_program, argv);
    int status = 0;
    must("wait", call(__NR_wait4, pid, &status, 0, nullptr));
    const double took = now() - began;
    if (status != 0) give_up("the program failed", -5);
    if (i >= 0) std::printf("%.4f\n", took);
  }
  return 0;
}

int usage() {
  std::fputs(
      "usage: floor create COUNT DISK PROGRAM LAYER... | floor spawn COUNT PROGRAM [ARGUMENT...]\n",
      stderr);
  return 2;
}

}  // namespace
}  // namespace floor_bench

int main(int argc, char** argv) {
  if (argc < 4) return floor_bench::usage();
  const std::string what = argv[1];
  const int count = std::atoi(argv[2]);
  if (what == "spawn") return floor_bench::spawn_loop(count, argv + 3);
  if (what != "create" || argc < 6 || argc > 5 + floor_bench::max_layers)
    return floor_bench::usage();
  return floor_bench::create_loop(count, argv[3], argv[4], {argv + 5, argv + argc});
}

// The floor under the bench groups: what the kernel itself takes for the same work. Prints one
// figure per line, in milliseconds, after a warm-up; with a name before it where there are several
// kinds. Needs root.
//   floor create COUNT DISK PROGRAM LAYER...   sandbox made -> PROGRAM's result, in a sandbox of
//                                              these EROFS layers (bottom first) with its writable
//                                              layer below the directory DISK
//   floor spawn COUNT PROGRAM [ARGUMENT...]    bare vfork + exec + wait on the host
//   floor churn SECONDS WORKERS DISK PROGRAM LAYER...    whole lives, one after another (crowd.cpp)
//   floor density COUNT WORKERS DISK PROGRAM LAYER...    all alive at once
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "floor/crowd.hpp"
#include "floor/kernel.hpp"
#include "floor/sandbox.hpp"

namespace floor_bench {
namespace {

constexpr int warm_up = 5;

int create_loop(int count, const std::string& disk, const char* program,
                const std::vector<std::string>& layers) {
  const std::string name = "floor-" + std::to_string(::getpid());
  open_hierarchies();
  groups g = make_groups(name, aether_id);
  if (const int worker = ::fork(); worker == 0) {
    // A child, so that the groups are removed by the parent whatever happens.
    prepare(disk, layers);
    std::vector<slot> used;
    for (int i = -warm_up; i < count; ++i) {
      slot s = make_slot(std::to_string(i + warm_up));
      const double began = now_ms();
      sandbox made = create(s, g, program);
      const double took = now_ms() - began;
      destroy(made);
      drop_slot(s);
      used.push_back(std::move(s));
      if (i >= 0) std::printf("%.4f\n", took);
    }
    // Not between creates: ext4 is slow to give out what was just given back.
    for (const slot& s : used) remove_home(s);
    std::fflush(stdout);
    ::_exit(0);
  } else {
    int status = 0;
    ::waitpid(worker, &status, 0);
    remove_groups(g);
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
    const double began = now_ms();
    const long pid = start_child(0, 0, -1, exec_program, argv);
    int status = 0;
    must("wait", call(__NR_wait4, pid, &status, 0, nullptr));
    const double took = now_ms() - began;
    if (status != 0) give_up("the program failed", -5);
    if (i >= 0) std::printf("%.4f\n", took);
  }
  return 0;
}

int usage() {
  std::fputs(
      "usage: floor create COUNT DISK PROGRAM LAYER... | floor spawn COUNT PROGRAM [ARGUMENT...] "
      "|\n"
      "       floor churn SECONDS WORKERS DISK PROGRAM LAYER... |\n"
      "       floor density COUNT WORKERS DISK PROGRAM LAYER...\n",
      stderr);
  return 2;
}

int run(int argc, char** argv) {
  if (argc < 4) return usage();
  const std::string what = argv[1];
  const int count = std::atoi(argv[2]);
  if (what == "spawn") return spawn_loop(count, argv + 3);
  const int fixed = what == "create" ? 5 : 6;
  if (argc <= fixed || argc > fixed + max_layers) return usage();
  const std::vector<std::string> layers(argv + fixed, argv + argc);
  if (what == "create") {
    prepare_process(0);
    return create_loop(count, argv[3], argv[4], layers);
  }
  const crowd_plan plan{count, std::atoi(argv[3]), argv[4], argv[5], layers};
  if (what == "churn") return churn(plan);
  if (what == "density") return density(plan);
  return usage();
}

}  // namespace
}  // namespace floor_bench

int main(int argc, char** argv) {
  return floor_bench::run(argc, argv);
}

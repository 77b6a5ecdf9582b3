// Measures one trick of the sandbox's set-up. Needs root.
//   tricks time NAME with|without COUNT DISK PROGRAM LAYER...   a figure per line, ms
//   tricks hold NAME with|without COUNT DISK PROGRAM LAYER...   what each of COUNT takes that are kept,
//                                              as charged to a memory group, KiB
//   tricks list                                what can be timed, what can be held
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <optional>

#include "tricks/charge.hpp"
#include "tricks/tricks.hpp"

namespace tricks {

bench given;

std::string next_name() {
  static int number = 0;
  return given.name + "-" + std::to_string(number++);
}

namespace {

constexpr int warm_up = 5;
constexpr int most_held = 2000;
constexpr int fixed_arguments = 7;

constexpr trick all[] = {
    {"no_libc", needs::nothing, no_libc, hold_program},
    {"shared_memory", needs::nothing, shared_memory, nullptr},
    {"shared_table", needs::nothing, shared_table, nullptr},
    {"own_attach", needs::nothing, own_attach, nullptr},
    {"parked_init", needs::layers, parked_init, nullptr},
    {"slots_ahead", needs::layers, slots_ahead, nullptr},
    {"groups_ahead", needs::layers, groups_ahead, nullptr},
    {"trash", needs::layers, trash, nullptr},
    {"no_pivot", needs::layers, no_pivot, nullptr},
    {"template_namespace", needs::layers, template_namespace, nullptr},
    {"skeleton_dev", needs::layers, skeleton_dev, hold_dev},
    {"shared_sys", needs::layers, shared_sys, hold_sys},
    {"shared_shm", needs::layers, shared_shm, hold_shm},
    {"late_pts", needs::layers, late_pts, hold_pts},
    {"volatile_overlay", needs::layers, volatile_overlay, nullptr},
};

void time_it(const trick& t, bool with, int count) {
  for (int i = -warm_up; i < count; ++i) {
    const double took = t.step(with);
    if (i >= 0) std::printf("%.4f\n", took);
  }
}

void hold_it(const trick& t, bool with, int count, const charge& memory) {
  memory.begin();
  t.hold(with);  // what the first one alone brings
  const double before = memory.kib();
  for (int i = 0; i < count; ++i) t.hold(with);
  std::printf("%.4f\n", (memory.kib() - before) / count);
}

int usage() {
  std::fputs(
      "usage: tricks time|hold NAME with|without COUNT DISK PROGRAM LAYER... | tricks list\n",
      stderr);
  return 2;
}

int list() {
  for (const trick& t : all) std::printf("%s%s\n", t.name, t.hold == nullptr ? "" : " hold");
  return 0;
}

/// A child does it, so that the groups are removed by the parent whatever happens.
int measure(const trick& t, bool held, char** argv, const std::vector<std::string>& layers) {
  const bool with = std::strcmp(argv[3], "with") == 0;
  const int count = std::atoi(argv[4]);
  prepare_process(most_held);
  given = {"tricks-" + std::to_string(::getpid()), argv[6]};
  open_hierarchies();
  const int worker = ::fork();
  if (worker == 0) {
    std::optional<charge> memory;
    if (held) memory.emplace();
    if (t.place == needs::layers) prepare(argv[5], layers);
    if (held)
      hold_it(t, with, count, *memory);
    else
      time_it(t, with, count);
    remove_leavings();
    std::fflush(stdout);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(worker, &status, 0);
  remove_groups_like(given.name + "-");
  return status == 0 ? 0 : 1;
}

int run(int argc, char** argv) {
  if (argc == 2 && std::strcmp(argv[1], "list") == 0) return list();
  if (argc <= fixed_arguments || argc > fixed_arguments + max_layers) return usage();
  const bool held = std::strcmp(argv[1], "hold") == 0;
  const auto* found = std::find_if(std::begin(all), std::end(all), [&](const trick& t) {
    return std::strcmp(t.name, argv[2]) == 0 && (!held || t.hold != nullptr);
  });
  if (found == std::end(all)) return usage();
  return measure(*found, held, argv, {argv + fixed_arguments, argv + argc});
}

}  // namespace
}  // namespace tricks

int main(int argc, char** argv) {
  return tricks::run(argc, argv);
}

// What makes a sandbox cheap, each trick by itself: the step that it is about, done with it and
// without.
#pragma once

#include <string>
#include <vector>

#include "floor/kernel.hpp"
#include "floor/sandbox.hpp"

namespace tricks {

using namespace floor_bench;

enum class needs {
  nothing,
  layers,  // prepare() has run: the namespace holds layers, skeleton and the disk
};

struct trick {
  const char* name;
  needs place;
  /// The step once; what its timed part took, ms. Whatever it leaves behind is removed untimed.
  double (*step)(bool with);
  /// The step once, and what it made stays as long as this process; null: it is about time alone.
  void (*hold)(bool with);
};

/// What all steps are given.
struct bench {
  std::string name;  // prefix of the groups
  const char* program;
};
extern bench given;

/// "<given.name>-<n>", another one each time.
std::string next_name();
/// The file `name` in the directory of an open one, opened for `flags`. Where the host's mounts are
/// seen.
int open_beside(int file, const char* name, int flags);

// processes.cpp: what a child is made of
double no_libc(bool with);
void hold_program(bool with);
double shared_memory(bool with);
double shared_table(bool with);
double own_attach(bool with);

// mounts.cpp: what its tree is made of
double no_pivot(bool with);
double template_namespace(bool with);
double skeleton_dev(bool with);
void hold_dev(bool with);
double shared_sys(bool with);
void hold_sys(bool with);
double shared_shm(bool with);
void hold_shm(bool with);
double late_pts(bool with);
void hold_pts(bool with);
double volatile_overlay(bool with);

// lives.cpp: when its parts are made and removed
double parked_init(bool with);
double slots_ahead(bool with);
double groups_ahead(bool with);
double trash(bool with);
/// Deletes what the steps have put off.
void remove_leavings();

}  // namespace tricks

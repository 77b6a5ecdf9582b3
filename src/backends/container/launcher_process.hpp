// Starts the launcher program that is carried inside this binary (guest/launch.hpp says with what)
// and knows how to recognise one of a given state directory again. Blocking, any thread.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <vector>

#include "backends/sys/unique_fd.hpp"
#include "base/paths.hpp"
#include "base/result.hpp"

namespace dsec::container {

struct launcher_process {
  pid_t pid = 0;
  sys::unique_fd connection;  // to its socket

  /// `layers_ns`: the layers' namespace of a launcher that died, or -1. Replaces whatever socket is
  /// there.
  static base::result<launcher_process> start(const base::paths& paths, int layers_ns);
};

/// pidfds of the launchers that were started for this state directory and still run.
base::result<std::vector<sys::unique_fd>> find_launchers(const std::filesystem::path& state);

/// Collects an ended child; harmless for others.
void reap(pid_t pid);

}  // namespace dsec::container

// Runs a program to its end: argument vector, explicit environment, captured output, a deadline.
// Blocks the calling thread; any thread. Nothing of the child outlives the call: it leads a session
// of its own that is killed on every way out, and it dies with the calling thread
// (PR_SET_PDEATHSIG), so that a killed dsecd leaves no tool behind. Fails when the program cannot
// be started or the deadline passes; a program that ran and reported failure is not an error here:
// look at `status`.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace dsec::base {

struct subprocess_spec {
  std::vector<std::string> argv;         // argv[0] is searched for in this process's PATH
  std::vector<std::string> env;          // NAME=VALUE, complete: nothing is inherited
  std::chrono::milliseconds timeout{0};  // must be positive
  /// Called for every line of stderr as it comes, without its end.
  std::function<void(std::string_view)> on_stderr_line;
  /// The child becomes PID 1 of a pid namespace (needs CAP_SYS_ADMIN): its daemonised descendants
  /// end with it.
  bool own_pid_namespace = false;
  /// Taken out of the bounding set before exec, when running as root.
  std::vector<int> drop_capabilities;
  /// RLIMIT_FSIZE of the child; 0 = none.
  std::uint64_t max_file_bytes = 0;
};

struct subprocess_result {
  int status = 0;      // exit status, or 128 + signal
  std::string out;     // the first MiB of stdout
  std::string errors;  // the last 8 KiB of stderr
};

/// errc::not_found when argv[0] is not installed, errc::deadline_exceeded when it was killed for
/// the timeout.
result<subprocess_result> run_subprocess(const subprocess_spec& spec);

/// Absolute path of a program in PATH; errc::not_found otherwise.
result<std::string> find_program(std::string_view name);

}  // namespace dsec::base

// What a fake backend is told to do: the fate of each command, and which steps fail or take their
// time.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "backends/backend.hpp"

namespace dsec::fake {

/// What becomes of one command. The command's own time limit counts too: what would end later times
/// out.
struct fate {
  std::optional<base::error> refused;  // it never starts: command_failed with this
  int exit_code = 0;
  int signal = 0;
  bool oom_killed = false;
  std::string out, err;
  std::chrono::milliseconds after{
      0};             // ends so long (real time) after it started; 0 = before exec() returns
  bool held = false;  // runs until it is killed or backend::finish() ends it
  // It is written down but lost on its way inside, as when dsecd dies in between: its fate is
  // command_failed, once somebody recovers the sandbox.
  bool never_arrives = false;
};

struct script {
  /// Default: exit 0, no output.
  std::function<fate(const backends::exec_spec&)> run{};
  /// Of file writes; those that end with 0 write. Default: all do, at once.
  std::function<fate(const backends::exec_spec&)> write{};
  /// Held commands time out in real time. Not where time is virtual.
  bool held_time_out = true;
  /// Called at the beginning of each step ("start", "exec", "kill", "read_output", "watch_output",
  /// "stop", "recover", "end_unrecovered"), on the caller's thread; an error makes the step fail,
  /// and it may block as long as it likes. Default: all succeed at once.
  std::function<base::result<void>(std::string_view step, const std::string& sandbox_id)> on_step{};
};

}  // namespace dsec::fake

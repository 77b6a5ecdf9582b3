// The daemon of an earlier run: a child process that works on a rig and is killed, and what the
// next one finds of it.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "container_rig.hpp"

namespace dsec::test {

/// A child process that works on `rig` and then waits to be killed: the daemon of an earlier run.
/// To be made while no other thread runs.
class earlier_daemon {
 public:
  /// Lets it keep the boxes that `work` answers. Throws when `work` does.
  explicit earlier_daemon(const std::function<std::vector<container_box>()>& work);
  /// Opens `rig` and keeps this one sandbox, in which `work` has been done.
  earlier_daemon(container_rig& rig, const std::string& id,
                 const std::function<void(container_box&)>& work = {});
  ~earlier_daemon() { kill(); }
  earlier_daemon(const earlier_daemon&) = delete;
  earlier_daemon& operator=(const earlier_daemon&) = delete;
  /// SIGKILL, if it runs, and waits for its end.
  void kill();

 private:
  pid_t pid_ = -1;
};

/// What the recovered sandbox knows of a command; fails the test when it knows none.
const backends::known_command& command(const backends::recovered& r, const std::string& id);

/// Runs `work` in a child process and answers whether it killed itself before the end.
bool dies_in_child(const std::function<void()>& work);

}  // namespace dsec::test

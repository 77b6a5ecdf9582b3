#include "earlier_daemon.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <stdexcept>
#include <utility>

namespace dsec::test {

earlier_daemon::earlier_daemon(const std::function<std::vector<container_box>()>& work) {
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  pid_ = ::fork();
  if (pid_ == 0) {
    ::close(ready[0]);
    try {
      const auto kept = work();
      [[maybe_unused]] const auto n = ::write(ready[1], "x", 1);
      while (true) ::pause();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "earlier daemon: %s\n", e.what());
    } catch (...) {  // a REQUIRE, which has printed itself
    }
    ::_exit(1);
  }
  ::close(ready[1]);
  char byte = 0;
  const auto n = ::read(ready[0], &byte, 1);
  ::close(ready[0]);
  if (n == 1) return;
  kill();
  throw std::runtime_error("the earlier daemon failed");
}

earlier_daemon::earlier_daemon(container_rig& rig, const std::string& id,
                               const std::function<void(container_box&)>& work)
    : earlier_daemon([&] {
        rig.open();
        std::vector<container_box> kept;
        kept.push_back(rig.start(id));
        if (work) work(kept.front());
        return kept;
      }) {}

void earlier_daemon::kill() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(std::exchange(pid_, -1), nullptr, 0);
}

const backends::known_command& command(const backends::recovered& r, const std::string& id) {
  const auto found =
      std::find_if(r.commands.begin(), r.commands.end(), [&](const auto& c) { return c.id == id; });
  REQUIRE(found != r.commands.end());
  return *found;
}

bool dies_in_child(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      work();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "child: %s\n", e.what());
    } catch (...) {
    }
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

}  // namespace dsec::test

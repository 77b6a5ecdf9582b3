// What an exec costs at aether's channel, beside the bare vfork + exec + wait of the same static
// program. Prints; the promise itself is checked by bench/.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <vector>

#include "support/aether_sandbox.hpp"

using namespace dsec;
using namespace dsec::tests;

namespace {

struct spread {
  double p10, p50, p99;
};

template <class function>
spread measure(int n, function body) {
  std::vector<double> ms;
  for (int i = 0; i < n; ++i) {
    const auto from = std::chrono::steady_clock::now();
    body();
    ms.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - from).count());
  }
  std::sort(ms.begin(), ms.end());
  const auto at = [&](double q) {
    return ms[static_cast<std::size_t>(q * static_cast<double>(n - 1))];
  };
  return {at(0.1), at(0.5), at(0.99)};
}

void print(const char* what, spread s) {
  std::printf("  %-44s p10 %.3f  p50 %.3f  p99 %.3f ms\n", what, s.p10, s.p50, s.p99);
  std::fflush(stdout);
}

void bare() {
  const char* const argv[] = {"busybox", "true", nullptr};
  const char* const envp[] = {nullptr};
  const pid_t pid = ::vfork();
  if (pid == 0) {
    ::execve("/bin/busybox", const_cast<char**>(argv), const_cast<char**>(envp));
    ::_exit(127);
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
}

}  // namespace

TEST_CASE("speed of exec at the channel", "[aether][speed]") {
  if (skipped()) return;
  aether_sandbox box({.root = tree::tiny});
  bool all_ok = true;
  for (int round = 0; round < 2; ++round) {
    print("bare vfork + exec + wait", measure(300, bare));
    print("exec at aether's channel", measure(300, [&] {
            all_ok &= box.run({.argv = {"/bin/busybox", "true"}}).ok();
          }));
  }
  print("read_file of 0 bytes", measure(100, [&] {
          all_ok &= box.run({.argv = {"/etc/passwd"}, .kind = guest::exec_kind::read_file}).ok();
        }));
  print("whole sandbox, start to end",
        measure(20, [] { aether_sandbox other({.root = tree::tiny}); }));
  CHECK(all_ok);
}

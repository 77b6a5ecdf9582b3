// The leak check finds what it promises to find, and a backend that has run fifty sandboxes has
// none. Needs root.
#include <fcntl.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>

#include "backends/sys/file.hpp"
#include "backends/sys/temp_dir.hpp"
#include "container_rig.hpp"

using namespace dsec;
using namespace dsec::test;

namespace {

constexpr uid_t somebody = 470'000'007;

/// A process in namespaces that belong to `somebody`, itself root.
pid_t start_elsewhere() {
  int ready[2];
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool made = ::prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP) == 0 &&
                      ::setresuid(-1, somebody, -1) == 0 &&
                      ::unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0;
    [[maybe_unused]] const auto n = ::write(ready[1], made ? "y" : "n", 1);
    while (true) ::pause();
  }
  char answer = 0;
  REQUIRE(::read(ready[0], &answer, 1) == 1);
  ::close(ready[0]);
  ::close(ready[1]);
  REQUIRE(answer == 'y');
  return child;
}

bool names(const std::vector<std::string>& leaks, const std::string& text) {
  return std::any_of(leaks.begin(), leaks.end(),
                     [&](const auto& leak) { return leak.find(text) != std::string::npos; });
}

std::size_t ready_slots(const container_rig& rig) {
  std::size_t count = 0;
  for (const auto& e : std::filesystem::directory_iterator(rig.scope().state / "sandboxes"))
    count += e.path().filename().string().front() == '.' ? 1 : 0;
  return count;
}

/// The background has filled the pool, and the kernel has freed what it frees a little later.
bool settles(const container_rig& rig, std::size_t pool) {
  return eventually(
      [&] { return ready_slots(rig) == pool && find_live_leaks(rig.scope(), pool).empty(); });
}

}  // namespace

TEST_CASE("a namespace that only a descriptor holds is a leak", "[kernel][leak_check]") {
  leak_scope scope{"no-such-instance", "/nonexistent/no-such-state"};
  scope.uid_base = 470'100'000;
  scope.aether_uid_base = somebody;
  scope.slots = 1;
  CHECK(find_leaks(scope).empty());
  const pid_t child = start_elsewhere();
  auto held = sys::open_at(AT_FDCWD, "/proc/" + std::to_string(child) + "/ns/net", O_RDONLY);
  REQUIRE(held);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  const auto leaks = find_leaks(scope);
  CHECK(names(leaks, "namespace net:["));
  held->reset();
  CHECK(find_leaks(scope).empty());
}

TEST_CASE("a mount is a leak at the state directory and not at another of a similar name",
          "[kernel][leak_check]") {
  const auto dir = *sys::temp_dir::make("dsec-leak-check-test");
  const leak_scope scope{"no-such-instance", dir.path() / "leaky"};
  const auto leaks_with = [&](const char* place) {
    const auto at = dir.path() / place;
    std::filesystem::create_directories(at);
    REQUIRE(::mount("none", at.c_str(), "tmpfs", 0, "size=64k") == 0);
    auto leaks = find_leaks(scope);
    REQUIRE(::umount2(at.c_str(), MNT_DETACH) == 0);
    return leaks;
  };
  CHECK(leaks_with("leaky-2").empty());
  CHECK(leaks_with("not-leaky").empty());
  CHECK(leaks_with("other/leaky").empty());
  CHECK(names(leaks_with("leaky"), "mount at"));
  CHECK(names(leaks_with("leaky/images"), "mount at"));
  CHECK(find_leaks(scope).empty());
}

TEST_CASE("a running sandbox is a leak to the live check", "[kernel][leak_check]") {
  container_rig rig({2, 64});
  auto box = rig.start("alive");
  box.begin_sh("sleep 1000");
  const auto leaks = find_live_leaks(rig.scope(), 2);
  CHECK(names(leaks, "processes in control group"));
  CHECK(names(leaks, "sandboxes/alive"));
  box.stop();
  CHECK(settles(rig, 2));
}

TEST_CASE("fifty sandboxes leave a running backend as it was", "[kernel][container][leak_check]") {
  constexpr std::size_t pool = 4;
  container_rig rig({pool, 64});
  rig.start("first").stop();
  REQUIRE(settles(rig, pool));
  const auto launcher = find_launcher(rig.scope());
  REQUIRE(launcher);
  const auto mine = open_descriptors().size();  // by name they differ: other slots are ready
  const auto its = count_descriptors(*launcher);
  for (int round = 0; round < 10; ++round) {
    std::vector<container_box> boxes;
    for (int i = 0; i < 5; ++i)
      boxes.push_back(rig.start("n" + std::to_string(round) + "-" + std::to_string(i)));
    CHECK(boxes.back().sh("echo $((6 * 7))").out == "42\n");
    for (auto& b : boxes) b.stop();
  }
  CHECK(settles(rig, pool));
  CHECK(find_live_leaks(rig.scope(), pool) == std::vector<std::string>{});
  CHECK(eventually([&] { return open_descriptors().size() == mine; }));
  CHECK(open_descriptors().size() == mine);
  // At first it may not have taken down yet what the first create left.
  CHECK(eventually([&] { return count_descriptors(*launcher) <= its; }));
}

// Starts that cannot go through at once: the spawner is not there, its socket is full, or
// descriptors are short. Every one still runs or ends with a typed result, and aether lives.
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "support/aether_sandbox.hpp"
#include "support/eventually.hpp"

using namespace dsec;
using namespace dsec::tests;
using guest::failure;
using guest::msg;
using std::chrono::milliseconds;

namespace {

pid_t spawner_of(const aether_sandbox& box) {
  const auto processes = box.processes("init");
  REQUIRE(processes.size() == 2);
  return processes[0] == box.pid() ? processes[1] : processes[0];
}

/// Two megabytes of arguments: they travel in a memory file. Prints how many there are.
command large() {
  command c = {.argv = {"sh", "-c", "echo $#", "sh"}};
  for (int i = 0; i < 20; ++i) c.argv.push_back(std::string(100'000, 'x'));
  return c;
}

}  // namespace

// Not on the emulated machine: a spawner that is stopped for a second is replaced.
TEST_CASE("large arguments wait their turn behind a full spawner's socket", "[aether]") {
  if (skipped()) return;
  aether_sandbox box({.root = tree::tiny});
  const std::vector<command> large_ones(3, large());
  const pid_t spawner = spawner_of(box);
  REQUIRE(::kill(spawner, SIGSTOP) == 0);
  std::vector<std::string> ids;
  const command filling = {.argv = {"true"},
                           .env = {"PATH=/bin", "BIG=" + std::string(50'000, 'x')}};
  for (int i = 0; i < 20; ++i) ids.push_back(box.start(filling));
  std::vector<std::string> large_ids;
  for (const auto& c : large_ones) large_ids.push_back(box.start(c));
  REQUIRE(::kill(spawner, SIGCONT) == 0);
  for (const auto& id : large_ids) CHECK(box.wait(id).out == "20\n");
  for (const auto& id : ids) CHECK(box.wait(id).ok());
  CHECK(box.seen(msg::degraded) == 0);
}

// It costs the host as much memory as aether.
TEST_CASE("a spawner that has nothing to do is ended, and there is one for the next command",
          "[kernel][aether]") {
  if (skipped()) return;
  aether_sandbox box({.root = tree::tiny});
  const auto held = box.start({.argv = {"cat"}, .input = std::string(1, 'x')});
  CHECK(box.wait(held).out == "x");
  REQUIRE(box.processes("init").size() == 2);
  REQUIRE(
      test::eventually([&] { return box.processes("init").size() == 1; }, milliseconds(20'000)));
  for (int i = 0; i < 3; ++i) CHECK(box.run({.argv = {"true"}}).ok());
  CHECK(box.processes("init").size() == 2);
  CHECK(box.seen(msg::degraded) == 0);
}

TEST_CASE("a command whose descriptors cannot be taken over says so", "[kernel][aether][C16]") {
  if (skipped()) return;
  aether_sandbox box({.root = tree::tiny});
  REQUIRE(box.run({.argv = {"true"}}).ok());
  box.limit_files(3);
  for (const auto& c :
       {command{.argv = {"true"}}, command{.argv = {"cat"}, .input = "x"}, large()}) {
    const outcome o = box.run(c);
    REQUIRE(o.failed);
    CHECK(static_cast<failure>(o.failed->failure) == failure::resources);
    CHECK(o.failed->sys_errno == EMFILE);
  }
  box.limit_files(4096);
  CHECK(box.run({.argv = {"cat"}, .input = "x"}).out == "x");
}

TEST_CASE("no more commands at once than there are descriptors for", "[kernel][aether][C16]") {
  if (skipped()) return;
  aether_sandbox box({.root = tree::tiny, .files = 128});
  std::vector<std::string> ids;
  for (int i = 0; i < 40; ++i) {
    const bool input = i % 2 == 0;
    ids.push_back(box.start({.argv = {"sleep", "300"}, .input = input ? "x" : ""}));
  }
  int running = 0;
  for (const auto& id : ids) {
    if (box.wait_started(id, milliseconds(20'000))) {
      ++running;
      continue;
    }
    const outcome o = box.wait(id);
    REQUIRE(o.failed);
    CHECK(static_cast<failure>(o.failed->failure) == failure::resources);
    CHECK(o.failed->sys_errno == EMFILE);
  }
  CHECK(running == 16);
  box.send_plain(msg::kill_all);
  for (int i = 0; i < running; ++i)
    CHECK(box.wait(ids[static_cast<std::size_t>(i)]).exited->flags == guest::exited_killed);
  CHECK(box.run({.argv = {"true"}}).ok());
}

TEST_CASE("large arguments wait for a new spawner", "[kernel][aether][threat-1]") {
  if (skipped()) return;
  aether_sandbox box({.root = tree::tiny});
  for (int i = 0; i < 5; ++i) {
    REQUIRE(::kill(spawner_of(box), SIGKILL) == 0);
    // One may still be given to the spawner that is dying; the second finds none.
    const auto first = box.start(large()), second = box.start(large());
    for (const auto& id : {first, second}) {
      const outcome o = box.wait(id);
      if (o.failed) CHECK(static_cast<failure>(o.failed->failure) == failure::spawner);
      if (o.exited) CHECK(o.out == "20\n");
    }
    CHECK(box.run(large()).out == "20\n");
  }
  CHECK(box.alive());
}

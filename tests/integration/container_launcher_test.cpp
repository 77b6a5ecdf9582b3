// The container backend when its launcher hangs, hangs up or dies at the worst moment. Needs root.
#include <fcntl.h>
#include <signal.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <optional>
#include <thread>

#include "backends/container/launcher_process.hpp"
#include "backends/container/layer_cache.hpp"
#include "backends/sys/datagram.hpp"
#include "base/failpoint.hpp"
#include "container_rig.hpp"

using namespace dsec;
using namespace dsec::test;
using base::errc;

namespace {

/// The launcher serves the newest connection: this takes dsecd's away, and the launcher lives on.
sys::unique_fd take_connection(const std::filesystem::path& state) {
  auto connection = container::launcher_process::connect(base::paths(state));
  REQUIRE(connection);
  return std::move(*connection);
}

/// A rig whose layers are attached and whose pool is full.
void warm_up(container_rig& rig) {
  auto box = rig.start("first");
  box.stop();
  rig.backend().refill();
}

}  // namespace

TEST_CASE("a launcher that hangs up is replaced", "[kernel][container][launcher-fails]") {
  container_rig rig;
  auto box = rig.start("old");
  const auto first = rig.launcher_pid();
  const auto thief = take_connection(rig.scope().state);
  REQUIRE(eventually([&] { return rig.launcher_pid() && rig.launcher_pid() != first; }));
  auto next = rig.start("new");
  CHECK(next.sh("echo made").out == "made\n");
  CHECK(box.sh("echo still here").out == "still here\n");
  next.stop();
  box.stop();
}

TEST_CASE("closing ends a launcher that has hung up", "[kernel][container][launcher-fails]") {
  container_rig rig;
  const auto thief = take_connection(rig.scope().state);
  CHECK(rig.backend().close());
  CHECK_FALSE(rig.launcher_pid());
}

TEST_CASE(
    "a launcher that does not answer is killed and replaced, and nothing is left of what it "
    "was asked for",
    "[kernel][container][launcher-fails]") {
  container_rig rig({static_cast<std::uint32_t>(GENERATE(0, 2)), 64});  // at make_slot; at create
  warm_up(rig);
  const auto first = rig.launcher_pid();
  REQUIRE(first);
  REQUIRE(::kill(*first, SIGSTOP) == 0);
  auto box = rig.start("patient");
  CHECK(rig.launcher_pid() != first);
  CHECK(box.sh("echo made").out == "made\n");
  box.stop();
  CHECK(rig.inhabitants().empty());
}

#ifdef DSEC_FAILPOINTS
namespace {

void kill_launcher(const container_rig& rig) {
  const auto pid = rig.launcher_pid();
  REQUIRE(pid);
  REQUIRE(::kill(*pid, SIGKILL) == 0);
}

/// What the next daemon finds of the only sandbox.
void check_next_daemon_has(container_rig& rig, const std::string& id) {
  rig.leave();
  auto [box, what] = rig.inherit(id);
  CHECK(what.alive);
  box.stop();
}

}  // namespace

TEST_CASE("who asks for the current launcher does not wait for a start",
          "[kernel][container][launcher-fails]") {
  container_rig rig({2, 64}, false);
  const base::paths paths(rig.scope().state);
  std::filesystem::create_directories(paths.sandboxes());
  const auto loop = *sys::event_loop::start("test");
  container::launcher host(paths, *loop,
                           {.events = {.exited = [](const auto&, int) {}, .down = [] {}},
                            .survivors = [] { return std::vector<container::survivor>(); }});
  std::future<container::launcher::lease> asked;
  bool answered = false;
  base::failpoint::arm("container.launcher.started", [&] {
    asked = std::async(std::launch::async, [&] { return host.current(); });
    answered = asked.wait_for(10s) == std::future_status::ready;
  });
  REQUIRE(host.get());
  CHECK(answered);
  const auto then = asked.get();
  CHECK_FALSE(then.client);
  CHECK(then.generation == 0);
  const auto now = host.current();
  CHECK(now.client);
  CHECK(now.generation == 1);
  REQUIRE(host.shutdown());
  CHECK_FALSE(host.current().client);
  CHECK(host.get().error().code == errc::cancelled);
  std::filesystem::remove(paths.launcher_socket());
}

TEST_CASE("a backend whose launcher does not come up fails to open and leaves nothing",
          "[kernel][container][launcher-fails]") {
  container_rig rig({2, 64}, false);
  base::failpoint::arm("container.launcher.started", "error");
  CHECK_THROWS_WITH(rig.open(), Catch::Contains("container.launcher.started"));
  base::failpoint::disarm_all();
  CHECK(find_leaks(rig.scope()) == std::vector<std::string>{});
  rig.open();
}

TEST_CASE("ready slots outlast a launcher that cannot be started",
          "[kernel][container][launcher-fails]") {
  container_rig rig({2, 2});
  warm_up(rig);
  base::failpoint::arm("container.launcher.started", "error", true);
  kill_launcher(rig);
  for (int i = 0; i < 3; ++i)
    CHECK_FALSE(rig.try_start(container_rig::spec("t" + std::to_string(i))));
  base::failpoint::disarm_all();
  auto a = rig.start("a");
  auto b = rig.start("b");
  CHECK(b.sh("echo two").out == "two\n");
  a.stop();
  b.stop();
}

TEST_CASE("a launcher that dies at its start is replaced although nobody asks for one",
          "[kernel][container][launcher-fails]") {
  container_rig rig;
  auto box = rig.start("old");
  std::atomic<pid_t> second{0};
  base::failpoint::arm("container.launcher.started", [&] {
    // posix_spawn returns before the kernel shows the new program's environment.
    std::optional<pid_t> started;
    if (eventually([&] { return (started = rig.launcher_pid()).has_value(); }) &&
        ::kill(*started, SIGKILL) == 0)
      second = *started;
  });
  kill_launcher(rig);
  REQUIRE(eventually([&] { return second != 0; }));
  REQUIRE(eventually([&] { return rig.launcher_pid().value_or(second) != second; }));
  CHECK(box.sh("echo still here").out == "still here\n");
  box.stop();
}

TEST_CASE("a sandbox that is stopped while the next launcher adopts it is forgotten by that",
          "[kernel][container][launcher-fails]") {
  container_rig rig;
  auto box = rig.start("old");
  std::thread stopping;
  std::atomic<bool> adopted{false};
  base::failpoint::arm("container.launcher.adopted", [&] {
    stopping = std::thread([&] { CHECK(box->stop()); });
    adopted = eventually([&] { return rig.inhabitants().empty(); });
  });
  kill_launcher(rig);
  REQUIRE(eventually([&] { return adopted.load(); }));
  stopping.join();
  // The rig's end detaches the layer, which the launcher refuses while it counts the sandbox.
}

TEST_CASE("a launcher that dies as it answers a create leaves the sandbox to the next",
          "[kernel][container][launcher-fails]") {
  container_rig rig;
  warm_up(rig);
  std::atomic<bool> told{false};
  bool replaced = false;
  base::failpoint::arm("container.launcher.answered", [&] {
    base::failpoint::arm("container.launcher.adopted", [&] { told = true; });
    kill_launcher(rig);
    replaced = eventually([&] { return told.load(); });  // of all but this one
  });
  {
    auto box = rig.start("new");
    CHECK(box.sh("echo made").out == "made\n");
    rig.backend().leave();
  }
  CHECK(replaced);
  check_next_daemon_has(rig, "new");
}

TEST_CASE("a launcher that could not adopt a sandbox is told of it again",
          "[kernel][container][launcher-fails]") {
  container_rig rig;
  {
    auto box = rig.start("kept");
    base::failpoint::arm("container.launcher.adopt", "error", true);
    std::atomic<bool> adopted{false};
    base::failpoint::arm("container.launcher.adopted", [&] { adopted = true; });  // or not
    kill_launcher(rig);
    CHECK(eventually([&] { return adopted.load(); }));
    CHECK(eventually([&] { return rig.backend().stats().launcher_deaths == 1; }));
    CHECK(rig.backend().stats().launcher_restarts == 0);
    base::failpoint::disarm_all();
    CHECK(eventually([&] { return rig.backend().stats().launcher_restarts == 1; }));
    rig.backend().leave();
  }
  check_next_daemon_has(rig, "kept");
}

TEST_CASE("a launcher is replaced while chores wait for a disk",
          "[kernel][container][launcher-fails]") {
  container_rig rig;
  auto box = rig.start("kept");
  std::promise<void> waiting, disk;
  base::failpoint::arm("container.slots.refill", [&] {
    waiting.set_value();
    disk.get_future().wait();
  });
  rig.start("other").stop();  // whose slot is made anew
  REQUIRE(waiting.get_future().wait_for(10s) == std::future_status::ready);
  const auto first = rig.launcher_pid();
  kill_launcher(rig);
  CHECK(eventually([&] { return rig.launcher_pid() && rig.launcher_pid() != first; }));
  disk.set_value();
  box.stop();
}

TEST_CASE("a sandbox gets the last number although a refill has it just then",
          "[kernel][container]") {
  container_rig rig({.slot_pool = 1, .max_sandboxes = 2});
  rig.backend().refill();
  std::promise<void> waiting, disk;
  base::failpoint::arm("container.slots.make", [&] {
    waiting.set_value();
    disk.get_future().wait();
  });
  auto first = rig.start("first");
  auto refill = std::async(std::launch::async, [&] { rig.backend().refill(); });
  REQUIRE(waiting.get_future().wait_for(10s) == std::future_status::ready);
  auto second = std::async(std::launch::async, [&] { return rig.try_start(rig.spec("second")); });
  CHECK(second.wait_for(300ms) == std::future_status::timeout);
  disk.set_value();
  auto box = second.get();
  INFO((box ? std::string() : box.error().message));
  REQUIRE(box);
  CHECK_FALSE(rig.try_start(rig.spec("third")));
  box->stop();
  first.stop();
}

TEST_CASE("a launcher that dies between slot and create costs a start only another try",
          "[kernel][container][launcher-fails]") {
  container_rig rig;
  warm_up(rig);
  const auto first = rig.launcher_pid();
  bool replaced = false;
  base::failpoint::arm("container.start.limits", [&] {
    ::kill(*first, SIGKILL);
    replaced = eventually([&] { return rig.launcher_pid() && rig.launcher_pid() != first; });
  });
  auto box = rig.start("lucky");
  CHECK(replaced);
  CHECK(box.sh("echo made").out == "made\n");
  box.stop();
}

TEST_CASE("a sandbox that dies as soon as it runs is started again",
          "[kernel][container][launcher-fails]") {
  container_rig rig;
  for (int i = 0; i < 5; ++i) {
    base::failpoint::arm("container.start.handshake", [&] {
      for (const auto pid : rig.inhabitants()) ::kill(pid, SIGKILL);
      CHECK(eventually([&] { return rig.inhabitants().empty(); }));
    });
    const auto id = "reborn" + std::to_string(i);
    auto box = rig.try_start(container_rig::spec(id));
    INFO((box ? std::string() : box.error().message));
    REQUIRE(box);
    // When its death is noticed only after the start, the owner is told.
    if (!box->events().wait_gone(0ms) && !rig.inhabitants().empty())
      CHECK(box->sh("echo " + id).out == id + "\n");
    box->stop();
  }
}
#endif

TEST_CASE("a layer that cannot be detached is held and released as often as before",
          "[kernel][container][launcher-fails]") {
  container_rig rig({2, 64}, false);
  const base::paths paths(rig.scope().state);
  const auto loop = *sys::event_loop::start("test");
  container::launcher host(paths, *loop,
                           {.events = {.exited = [](const auto&, int) {}, .down = [] {}},
                            .survivors = [] { return std::vector<container::survivor>(); }});
  std::filesystem::create_directories(paths.sandboxes());
  container::layer_cache cache(host, 0);
  const std::vector<backends::layer_ref> layers{{"layer-box", box_image("box")}};
  const auto detach = [&] {
    const auto done = host.get()->client->detach_layer("layer-box");
    return done ? std::string("done") : done.error().to_string();
  };
  REQUIRE(cache.hold(layers));
  {
    const auto thief = take_connection(paths.state());
    cache.release(layers);  // the launcher that was robbed does not hear of it
  }
  // As if it had still done it before it died. A daemon that has heard of its death by now has
  // asked the next launcher already.
  std::string said;
  CHECK(eventually([&] {
    said = detach();
    return said == "done" || said.find("(not_found)") != std::string::npos;
  }));
  REQUIRE(cache.hold(layers));
  CHECK(detach() == "done");  // so it was attached
  REQUIRE(host.shutdown());
  std::filesystem::remove(paths.launcher_socket());
}

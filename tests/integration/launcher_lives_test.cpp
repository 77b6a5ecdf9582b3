// Who survives whom: launcher, its clients and sandboxes, ended in every order. With a stand-in for
// aether. Needs root.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <random>
#include <thread>

#include "launcher_rig.hpp"
#include "support/eventually.hpp"
#include "support/length.hpp"
#include "support/skip.hpp"

using namespace dsec;
using test::eventually;
using test::launcher_rig;
using test::unique_fd;

namespace {

bool ended(const unique_fd& pidfd) {
  siginfo_t info{};
  return ::waitid(P_PIDFD, static_cast<id_t>(pidfd.get()), &info, WEXITED | WNOHANG | WNOWAIT) == 0
             ? info.si_pid != 0
             : syscall(SYS_pidfd_send_signal, pidfd.get(), 0, nullptr, 0) != 0;
}

std::string adopt(launcher_rig& rig, const char* id, std::uint32_t slot,
                  const launcher_rig::made& m) {
  guest::launch_adopt request{};
  std::snprintf(request.sandbox, sizeof request.sandbox, "%s", id);
  request.slot = slot;
  request.layers = 1;
  std::snprintf(request.layer[0], sizeof request.layer[0], "busybox");
  return rig.client().order(guest::launch::adopt, request, {m.box.fd(), m.pidfd.get()});
}

}  // namespace

TEST_CASE("the end of aether is told with its status and kept until release",
          "[kernel][launcher]") {
  launcher_rig rig;
  auto made = rig.create("one", 1);
  CHECK(rig.client().release("one") == "lives: EBUSY");
  CHECK(rig.client().shutdown() == "sandboxes live: EBUSY");
  made.box.quit(7);
  const auto event = rig.client().wait_exited();
  CHECK(std::string(event.sandbox) == "one");
  CHECK((WIFEXITED(event.status) && WEXITSTATUS(event.status) == 7));
  CHECK(rig.client().hello().sandboxes == 0);
  const auto all = rig.client().list();
  REQUIRE(all.count("one") == 1);
  CHECK(all.at("one").what.exited == 1);
  CHECK(all.at("one").what.status == event.status);
  CHECK(rig.client().release("one") == "done");
  CHECK(rig.client().release("one") == "sandbox: ENOENT");
  CHECK(rig.client().list().empty());
}

TEST_CASE("a new client takes over and finds the sandboxes", "[kernel][launcher]") {
  launcher_rig rig;
  auto first = rig.create("first", 1);
  auto second = rig.create("second", 2);
  test::launch_client old = std::move(rig.client());
  rig.connect();
  CHECK(rig.client().hello().sandboxes == 2);
  CHECK(old.closed());
  first.box = {};
  first.pidfd = {};
  auto all = rig.client().list();
  REQUIRE(all.size() == 2);
  CHECK(all.at("first").what.slot == 1);
  CHECK(all.at("second").what.exited == 0);
  first.box = test::inside(std::move(all.at("first").channel));
  CHECK(first.box.sh("busybox id -u").output == "0\n");
  rig.destroy("first", first);
  rig.destroy("second", second);
}

TEST_CASE("what ended while no client was there is told by the list", "[kernel][launcher]") {
  launcher_rig rig;
  auto made = rig.create("one", 1);
  { const test::launch_client gone = std::move(rig.client()); }
  made.box.quit(3);
  REQUIRE(made.box.closes());
  rig.connect();
  rig.client().hello();
  CHECK(eventually([&] { return rig.client().list().at("one").what.exited == 1; }));
  CHECK(WEXITSTATUS(rig.client().list().at("one").what.status) == 3);
  CHECK(rig.client().release("one") == "done");
}

TEST_CASE("a client that is not root is turned away", "[kernel][launcher]") {
  launcher_rig rig;
  // The socket is 0600 in a directory of root's; given to another uid by its descriptor it still
  // does not serve it.
  const pid_t child = ::fork();
  if (child == 0) {
    ::chmod(rig.state().c_str(), 0755);
    ::chmod((rig.state() / "launcher.sock").c_str(), 0666);
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) _exit(2);
    try {
      test::launch_client stranger(rig.state() / "launcher.sock");
      _exit(stranger.closed() ? 0 : 3);
    } catch (...) {
      _exit(4);
    }
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  CHECK(status == 0);
  CHECK(rig.client().hello().version == guest::launch_version);
}

TEST_CASE("sandboxes survive the launcher and are adopted by the next", "[kernel][launcher]") {
  launcher_rig rig;
  auto made = rig.create("one", 1);
  unique_fd layers_ns;
  rig.client().hello(&layers_ns);
  rig.kill_launcher();
  CHECK(made.box.sh("busybox cat /etc/which").output == "base");

  rig.start_launcher(layers_ns.get());
  // The layer is still there: a bad file shows that it was not mounted anew.
  CHECK(rig.client().attach("busybox", "/bin/busybox") == "done");
  CHECK(adopt(rig, "one", 1, made) == "done");
  CHECK(adopt(rig, "one", 1, made) == "sandbox: EEXIST");
  CHECK(rig.client().detach("busybox") == "in use: EBUSY");
  CHECK(rig.client().make_slot(1, launcher_rig::uid_base(), launcher_rig::aether_uid()) ==
        "in use: EBUSY");
  auto another = rig.create("two", 2);
  CHECK(another.box.sh("busybox cat /etc/which").output == "base");
  rig.destroy("two", another);
  made.box.quit(0);
  const auto event = rig.client().wait_exited();
  CHECK(event.status == -1);
  CHECK(rig.client().release("one") == "done");
  CHECK(rig.client().detach("busybox") == "done");
}

TEST_CASE("when launcher and client are both gone the sandbox sees the end of its channel",
          "[kernel][launcher]") {
  launcher_rig rig;
  auto made = rig.create("one", 1);
  rig.kill_launcher();
  CHECK_FALSE(ended(made.pidfd));
  made.box = {};
  CHECK(eventually([&] { return ended(made.pidfd); }));
}

TEST_CASE("a launcher killed at any step leaves nothing behind", "[kernel][launcher]") {
  const auto mounts = test::mount_table();
  const auto loops = test::loop_devices();
  const auto* step = GENERATE("layers", "upper", "overlay", "sys", "channel", "init", "record");
  INFO(step);
  {
    launcher_rig rig({std::string("DSEC_LAUNCHER_FAIL=") + step + "=kill"});
    rig.prepare("one", 1, {});
    unique_fd layers_ns;
    rig.client().hello(&layers_ns);
    CHECK_THROWS(rig.ask_create("one", 1, {}));
    rig.kill_launcher();
    rig.start_launcher(layers_ns.get());
    CHECK(rig.client().list().empty());
    CHECK(rig.client().detach("busybox") == "done");
    CHECK(eventually([] { return test::processes_of_tests().empty(); }));
  }
  CHECK(test::mount_table() == mounts);
  CHECK(test::loop_devices() == loops);
}

TEST_CASE("a launcher killed at any moment of a create leaves nothing behind",
          "[kernel][launcher]") {
  const auto mounts = test::mount_table();
  const auto loops = test::loop_devices();
  {
    std::minstd_rand random(1);
    launcher_rig rig;
    for (int i = 0; i < test::length(100); ++i) {
      const auto id = "n" + std::to_string(i);
      rig.prepare(id, 1, {});
      unique_fd layers_ns;
      rig.client().hello(&layers_ns);
      const pid_t launcher = rig.pid();
      std::thread killer([&, delay = std::chrono::microseconds(random() % 3000)] {
        // Not a wait for something: the moment itself is what the test varies.
        std::this_thread::sleep_for(delay);
        ::kill(launcher, SIGKILL);
      });
      try {
        rig.ask_create(id, 1, {});  // if it was faster, its channel is closed here
      } catch (const test::rig_error&) {
      }
      killer.join();
      rig.kill_launcher();
      CHECK(eventually([] { return test::processes_of_tests().empty(); }));
      rig.start_launcher(layers_ns.get());
      CHECK(rig.client().list().empty());
    }
    CHECK(rig.client().detach("busybox") == "done");
  }
  CHECK(test::mount_table() == mounts);
  CHECK(test::loop_devices() == loops);
}

TEST_CASE("requests that make no sense are refused, not obeyed", "[kernel][launcher]") {
  launcher_rig rig;
  struct {
    guest::launch_header h;
  } empty{};
  auto& client = rig.client();
  CHECK(client.order(static_cast<guest::launch>(99), empty) == "unknown request: ENOSYS");
  CHECK(client.order(guest::launch::create, empty) == "malformed: EINVAL");
  CHECK(client.order(guest::launch::attach_layer, empty) == "malformed: EINVAL");
  CHECK(client.order(guest::launch::adopt, empty) == "malformed: EINVAL");
  CHECK(client.order(guest::launch::release, empty) == "malformed: EINVAL");
  guest::launch_layer unterminated{};
  std::memset(unterminated.name, 'a', sizeof unterminated.name);
  CHECK(client.order(guest::launch::attach_layer, unterminated, {rig.listening()}) ==
        "malformed: EINVAL");
  guest::launch_create create{};
  create.sandbox[0] = 'x';
  create.hostname[0] = 'x';
  create.layers = 1;
  create.init_tasks = 0xffffffff;
  CHECK(client.order(guest::launch::create, create, {rig.listening()}) ==
        "request: counts: EINVAL");
  create.init_tasks = 1;
  CHECK(client.order(guest::launch::create, create, {rig.listening()}) ==
        "request: descriptors: EINVAL");
}

TEST_CASE("commands cannot make themselves as safe from the OOM killer as aether is",
          "[kernel][launcher]") {
  launcher_rig rig;
  rig.client().hello();
  const auto score = [](const std::string& pid) {
    int value = 0;
    std::ifstream("/proc/" + pid + "/oom_score_adj") >> value;
    return value;
  };
  if (score(std::to_string(rig.pid())) != -950) {
    dsec::test::say_skipped(
        "root lacks CAP_SYS_RESOURCE here, so that no oom_score_adj can be lowered");
    return;
  }
  auto made = rig.create("one", 1);
  REQUIRE(test::processes_of_tests().size() == 1);
  CHECK(score(std::to_string(test::processes_of_tests()[0])) == -882);
  const auto set = [&](const std::string& value) {
    return made.box.sh("echo " + value + " >/proc/self/oom_score_adj").status;
  };
  CHECK(set("200") == 0);
  CHECK(set("199") != 0);
  CHECK(set("-900") != 0);
  CHECK(made.box.sh("echo -17 >/proc/self/oom_adj").status != 0);
  rig.destroy("one", made);
}

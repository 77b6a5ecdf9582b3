// What a daemon does when the launcher that it finds at its start is stopped, slow, silent, of
// another version, or an impostor. Needs root.
#include <sched.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <future>
#include <span>

#include "backends/container/launcher_process.hpp"
#include "backends/container/launcher_search.hpp"
#include "backends/sys/datagram.hpp"
#include "backends/sys/file.hpp"
#include "backends/sys/pidfd.hpp"
#include "earlier_daemon.hpp"

using namespace dsec;
using namespace dsec::test;
using base::errc;

namespace {

/// Holds a process up as a call that waits for a disk does: it runs nothing, and no signal but
/// SIGKILL changes that. It is traced by a child, and goes on when that ends.
class held_up {
 public:
  explicit held_up(pid_t victim) {
    int held[2];
    REQUIRE(::pipe(held) == 0);
    tracer_ = ::fork();
    if (tracer_ == 0) {
      if (::ptrace(PTRACE_SEIZE, victim, nullptr, nullptr) != 0 ||
          ::ptrace(PTRACE_INTERRUPT, victim, nullptr, nullptr) != 0 ||
          ::waitpid(victim, nullptr, __WALL) != victim || ::write(held[1], "x", 1) != 1)
        ::_exit(1);
      while (true) ::pause();
    }
    ::close(held[1]);
    char byte = 0;
    const bool done = ::read(held[0], &byte, 1) == 1;
    ::close(held[0]);
    REQUIRE(done);
  }
  ~held_up() { release(); }
  held_up(const held_up&) = delete;
  held_up& operator=(const held_up&) = delete;
  void release() {
    if (tracer_ < 0) return;
    ::kill(tracer_, SIGKILL);
    ::waitpid(std::exchange(tracer_, -1), nullptr, 0);
  }

 private:
  pid_t tracer_ = -1;
};

container::launcher::hooks no_hooks() {
  return {.events = {.exited = [](const auto&, int) {}, .down = [] {}},
          .survivors = [] { return std::vector<container::survivor>(); }};
}

base::result<std::optional<container::inherited_launcher>> take_over(
    const container_rig& rig, std::chrono::milliseconds patience) {
  const auto loop = *sys::event_loop::start("test");
  container::launcher host(base::paths(rig.scope().state), *loop, no_hooks());
  auto outcome = host.take_over(patience);
  host.leave();
  return outcome;
}

/// Listens where the launcher would, in its place.
class stand_in {
 public:
  explicit stand_in(const container_rig& rig) {
    const auto path = base::paths(rig.scope().state).launcher_socket();
    std::filesystem::remove(path);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    REQUIRE(path.native().size() < sizeof address.sun_path);
    std::strcpy(address.sun_path, path.c_str());
    listening_.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    REQUIRE(::bind(listening_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0);
    REQUIRE(::listen(listening_.get(), 4) == 0);
  }
  void hang_up() { accept(); }
  /// Answers one hello.
  void greet(std::uint32_t version) {
    const auto connection = accept();
    guest::launch_hello hello{};
    if (::recv(connection.get(), &hello, sizeof hello, 0) != sizeof hello) return;
    hello.version = version;
    hello.pid = 1;  // not of ours: whoever takes it for a launcher must not end it
    (void)sys::send_datagram(connection.get(), sys::bytes_of(hello), std::array{connection.get()});
    char end = 0;
    (void)::recv(connection.get(), &end, 1, 0);
  }

 private:
  sys::unique_fd accept() {
    return sys::unique_fd(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  }
  sys::unique_fd listening_;
};

void check_alive(container_rig& rig, const std::string& id) {
  auto [box, what] = rig.inherit(id);
  CHECK(what.alive);
  if (what.alive) CHECK(box.sh("echo here").out == "here\n");
  box.stop();
}

/// What a daemon that was killed has left: a sandbox and the launcher that holds it.
struct left_behind {
  explicit left_behind(const std::string& id) : before(rig, id) {
    before.kill();
    const auto holder = rig.launcher_pid();
    REQUIRE(holder);
    launcher = *holder;
  }

  container_rig rig{{1, 64}, false};
  earlier_daemon before;
  pid_t launcher = -1;
};

/// A process that looks like the launcher of `rig` from outside.
enum class who { nobody, other_root, root_as_nobody };
pid_t start_impostor(const container_rig& rig, who it_is) {
  const auto program = *sys::read_file("/bin/sleep");
  const auto image =
      *sys::sealed_memfd(container::launcher_program, std::as_bytes(std::span(program)), 0555);
  const auto path = "/proc/self/fd/" + std::to_string(image.get());
  auto variable = container::launcher_variable(rig.scope().state);
  char name[] = "dsec-launcher", time[] = "1000";
  char* words[] = {name, time, nullptr};
  char* environment[] = {variable.data(), nullptr};
  int told[2];
  REQUIRE(::pipe(told) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    if (it_is == who::other_root && ::unshare(CLONE_NEWPID) != 0) ::_exit(1);
    const pid_t impostor = ::fork();
    if (impostor == 0) {
      if (it_is == who::nobody && (::setgid(65534) != 0 || ::setuid(65534) != 0)) ::_exit(1);
      if (it_is == who::root_as_nobody && ::seteuid(65534) != 0) ::_exit(1);
      ::execve(path.c_str(), words, environment);
      ::_exit(1);
    }
    ::_exit(::write(told[1], &impostor, sizeof impostor) == sizeof impostor ? 0 : 1);
  }
  ::waitpid(child, nullptr, 0);
  pid_t impostor = -1;
  REQUIRE(::read(told[0], &impostor, sizeof impostor) == sizeof impostor);
  ::close(told[0]);
  ::close(told[1]);
  REQUIRE(eventually([&] { return rig.launcher_pid() == impostor; }));  // it has been executed
  return impostor;
}

}  // namespace

TEST_CASE("a launcher that is stopped is continued by the next daemon, and nothing is lost",
          "[kernel][container][recovery][launcher-fails]") {
  left_behind scene("kept");
  auto& rig = scene.rig;
  REQUIRE(::kill(scene.launcher, SIGSTOP) == 0);
  check_alive(rig, "kept");
  CHECK(rig.launcher_pid() == scene.launcher);
}

TEST_CASE("a launcher that is slow to answer the next daemon is waited for",
          "[kernel][container][recovery][launcher-fails]") {
  left_behind scene("kept");
  auto& rig = scene.rig;
  const bool crowded = GENERATE(true, false);
  held_up slow(scene.launcher);
  std::vector<sys::unique_fd> crowd;
  while (crowded) {
    auto one = container::launcher_process::connect(base::paths(rig.scope().state));
    if (!one) break;
    crowd.push_back(std::move(*one));
  }
  auto opening = std::async(std::launch::async, [&] { rig.open_only(); });
  // Longer than any request may take otherwise.
  CHECK(opening.wait_for(crowded ? 1s : 11s) == std::future_status::timeout);
  slow.release();
  opening.get();
  auto [box, what] = rig.recover("kept");
  CHECK(what.alive);
  rig.end_unrecovered();
  box.stop();
  CHECK(rig.launcher_pid() == scene.launcher);
}

TEST_CASE("a launcher that stays silent fails the start, which names it and touches nothing",
          "[kernel][container][recovery][launcher-fails]") {
  left_behind scene("kept");
  auto& rig = scene.rig;
  held_up silent(scene.launcher);
  for (int i = 0; i < 8; ++i) {  // a service manager tries again and again
    const auto failed = take_over(rig, 300ms);
    REQUIRE_FALSE(failed);
    CHECK(failed.error().code == errc::unavailable);
    CHECK(failed.error().message.find("process " + std::to_string(scene.launcher) + " (state t") !=
          std::string::npos);
    CHECK(failed.error().message.find("dsecd stop --all") != std::string::npos);
  }
  silent.release();
  check_alive(rig, "kept");
  CHECK(rig.launcher_pid() == scene.launcher);
}

TEST_CASE("a silent launcher that dies at last is not waited for",
          "[kernel][container][recovery][launcher-fails]") {
  left_behind scene("lost");
  auto& rig = scene.rig;
  const held_up silent(*rig.launcher_pid());
  auto opening = std::async(std::launch::async, [&] { rig.open_only(); });
  CHECK(opening.wait_for(1s) == std::future_status::timeout);
  REQUIRE(::kill(*rig.launcher_pid(), SIGKILL) == 0);
  REQUIRE(opening.wait_for(5s) == std::future_status::ready);
  opening.get();
  auto [box, what] = rig.recover("lost");
  CHECK_FALSE(what.alive);
  rig.end_unrecovered();
}

TEST_CASE("whatever its launcher does, an instance can be ended",
          "[kernel][container][recovery][launcher-fails]") {
  left_behind scene("unwanted");
  auto& rig = scene.rig;
  const std::string fate = GENERATE("works", "stopped", "held up", "dead");
  std::optional<held_up> held;
  if (fate == "stopped") REQUIRE(::kill(scene.launcher, SIGSTOP) == 0);
  if (fate == "held up") held.emplace(scene.launcher);
  if (fate == "dead") REQUIRE(::kill(scene.launcher, SIGKILL) == 0);
  INFO(fate);
  const auto ended =
      container::container_backend::end_everything(base::paths(rig.scope().state), rig.node(), {});
  INFO((ended ? std::string() : ended.error().to_string()));
  CHECK(ended);
  CHECK_FALSE(rig.launcher_pid());
  CHECK_FALSE(std::filesystem::exists(rig.group()));
  CHECK_FALSE(std::filesystem::exists(base::paths(rig.scope().state).launcher_socket()));
  // The rig's end looks for all else.
}

TEST_CASE("a launcher of a version that is not spoken is left alone, and can be ended",
          "[kernel][container][recovery][launcher-fails]") {
  left_behind scene("foreign");
  auto& rig = scene.rig;
  stand_in newer(rig);
  const auto inhabitants = rig.inhabitants().size();
  auto serving = std::async(std::launch::async, [&] { newer.greet(99); });
  const auto failed =
      container::container_backend::open(base::paths(rig.scope().state), rig.node(), {});
  serving.get();
  REQUIRE_FALSE(failed);
  CHECK(failed.error().code == errc::unsupported);
  CHECK(failed.error().message.find("version 99") != std::string::npos);
  CHECK(failed.error().message.find("dsecd stop --all") != std::string::npos);
  CHECK(rig.inhabitants().size() == inhabitants);
  CHECK(rig.launcher_pid());
  CHECK(
      container::container_backend::end_everything(base::paths(rig.scope().state), rig.node(), {}));
  CHECK_FALSE(rig.launcher_pid());
}

TEST_CASE("a launcher that hangs up on the next daemon is asked again",
          "[kernel][container][recovery][launcher-fails]") {
  left_behind scene("kept");
  auto& rig = scene.rig;
  const auto socket = base::paths(rig.scope().state).launcher_socket();
  std::filesystem::rename(socket, socket.native() + ".aside");
  {
    stand_in hasty(rig);
    auto serving = std::async(std::launch::async, [&] {
      hasty.hang_up();
      hasty.greet(99);
    });
    CHECK(take_over(rig, 10s).error().code == errc::unsupported);
  }
  CHECK(rig.launcher_pid());
  std::filesystem::rename(socket.native() + ".aside", socket);
  check_alive(rig, "kept");
}

TEST_CASE("a daemon that lacks descriptors at any point of its start ends nothing",
          "[kernel][container][recovery][launcher-fails]") {
  left_behind scene("kept");
  auto& rig = scene.rig;
  const auto in_use = open_descriptors().size() + 1;  // the log of what is open is one
  rlimit all{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &all) == 0);
  bool opened = false;
  for (rlim_t more = 0; more < 40 && !opened; ++more) {
    const rlimit few{in_use + more, all.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &few) == 0);
    {
      const auto backend =
          container::container_backend::open(base::paths(rig.scope().state), rig.node(), {});
      opened = backend.has_value();
    }
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &all) == 0);
    REQUIRE(rig.launcher_pid() == scene.launcher);
  }
  CHECK(opened);
  check_alive(rig, "kept");
}

TEST_CASE("a daemon that cannot open keeps the groups of what runs",
          "[kernel][container][recovery]") {
  left_behind scene("kept");
  auto& rig = scene.rig;
  const base::paths paths(rig.scope().state);
  std::filesystem::remove_all(paths.trash());
  std::ofstream(paths.trash()) << "in the way";
  CHECK_FALSE(container::container_backend::open(paths, rig.node(), {}));
  std::filesystem::remove(paths.trash());
  check_alive(rig, "kept");
}

TEST_CASE("what only looks like a launcher is not ended",
          "[kernel][container][recovery][launcher-fails]") {
  container_rig rig({1, 64}, false);
  const auto impostor = start_impostor(rig, GENERATE(who::nobody, who::other_root));
  const auto pidfd = *sys::open_pidfd(impostor);
  rig.open();
  CHECK_FALSE(sys::wait_ended(pidfd.get(), sys::after(0ms)));
  ::kill(impostor, SIGKILL);
  CHECK(sys::wait_ended(pidfd.get(), sys::after(5s)));
}

TEST_CASE("a launcher that works under another effective uid is known as one",
          "[kernel][container][recovery][launcher-fails]") {
  const container_rig rig({1, 64}, false);
  const auto pid = start_impostor(rig, who::root_as_nobody);
  const auto found = container::find_launchers(rig.scope().state);
  REQUIRE(found);
  REQUIRE(found->size() == 1);
  CHECK(found->front().pid == pid);
  CHECK(container::kill_launchers(rig.scope().state, 0) == 1U);
}

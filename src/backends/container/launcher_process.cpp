#include "backends/container/launcher_process.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "backends/container/launcher_search.hpp"
#include "backends/sys/datagram.hpp"
#include "backends/sys/file.hpp"
#include "backends/sys/pidfd.hpp"
#include "base/embedded.hpp"
#include "base/log.hpp"

namespace dsec::container {
namespace {

using base::errc;
using base::fail;
using base::fail_errno;
using base::result;
using sys::unique_fd;

/// Descriptors are prepared up here, so that none stands where a child's must go.
constexpr int above_child_fds = 16;
/// From SIGKILL to the end: at once, but for a call that waits for a disk.
constexpr auto death_timeout = std::chrono::seconds(5);

result<unique_fd> listen_at(const std::filesystem::path& path) {
  DSEC_TRY(const auto directory, sys::open_at(AT_FDCWD, path.parent_path(), O_PATH | O_DIRECTORY));
  const auto name = path.filename().string();
  ::unlinkat(directory.get(), name.c_str(), 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  // Through the directory's descriptor: the path may be longer than sun_path.
  const auto short_name = "/proc/self/fd/" + std::to_string(directory.get()) + "/" + name;
  std::memcpy(address.sun_path, short_name.c_str(),
              std::min(short_name.size(), sizeof address.sun_path - 1));
  unique_fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  // The file gets the socket's own mode: there is no moment at which it is open to others.
  if (!socket || ::fchmod(socket.get(), 0600) != 0 ||
      ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(socket.get(), 4) != 0)
    return fail_errno("cannot listen at '" + path.string() + "'");
  return socket;
}

result<unique_fd> raise(int fd) {
  unique_fd high(::fcntl(fd, F_DUPFD_CLOEXEC, above_child_fds));
  if (!high) return fail_errno("cannot duplicate a descriptor");
  return high;
}

/// What posix_spawn(3) needs, with the launcher's descriptors at 3, 4, 5 … in the order given.
struct spawn_plan {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  std::vector<unique_fd> raised;

  spawn_plan() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
    // A session of its own, so that no signal for dsecd's terminal or group hits it; nothing
    // blocked or ignored.
    sigset_t none, all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setsigdefault(&attributes, &all);
    ::posix_spawnattr_setflags(&attributes,
                               POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  spawn_plan(const spawn_plan&) = delete;
  spawn_plan& operator=(const spawn_plan&) = delete;
  ~spawn_plan() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }

  result<void> pass(int fd) {
    DSEC_TRY(auto high, raise(fd));
    const int target = 3 + static_cast<int>(raised.size());
    ::posix_spawn_file_actions_adddup2(&actions, high.get(), target);
    raised.push_back(std::move(high));
    return {};
  }

  /// A library may hold descriptors without O_CLOEXEC, such as a client's connection, which would
  /// then seem to live on after our death.
  void close_rest() {
    ::posix_spawn_file_actions_addclosefrom_np(&actions, 3 + static_cast<int>(raised.size()));
  }
};

/// What a test wants of the launcher (guest/launcher/instrument.hpp), or nullptr.
char* instrument() {
#ifdef DSEC_FAILPOINTS
  constexpr std::string_view wanted = "DSEC_LAUNCHER_FAIL=";
  for (char** each = environ; *each != nullptr; ++each) {
    if (std::string_view(*each).starts_with(wanted)) return *each;
  }
#endif
  return nullptr;
}

result<pid_t> spawn(const std::filesystem::path& state, std::span<const int> fds) {
  DSEC_TRY(const auto image, sys::sealed_memfd(launcher_program, base::embedded_launcher(), 0500));
  spawn_plan plan;
  std::vector<std::string> words{launcher_program};
  for (const int fd : fds) {
    words.push_back(std::to_string(3 + plan.raised.size()));
    DSEC_CHECK(plan.pass(fd));
  }
  const auto program = "/proc/self/fd/" + std::to_string(3 + plan.raised.size());
  DSEC_CHECK(plan.pass(image.get()));
  plan.close_rest();
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (auto& w : words) arguments.push_back(w.data());
  arguments.push_back(nullptr);
  // The first variable, and outside test builds the only one; a launcher is known by it.
  auto variable = launcher_variable(state);
  char* environment[] = {variable.data(), instrument(), nullptr};
  pid_t pid = 0;
  if (const int e = ::posix_spawn(&pid, program.c_str(), &plan.actions, &plan.attributes,
                                  arguments.data(), environment);
      e != 0)
    return fail(base::from_errno("cannot start the launcher", e));
  return pid;
}

/// Takes the status of a child that has ended or is about to.
void collect(pid_t pid) {
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED) != 0 && errno == EINTR) {
  }
}

}  // namespace

result<launcher_process> launcher_process::start(const base::paths& paths, int layers_ns) {
  if (base::embedded_launcher().empty())
    return fail(errc::unsupported, "this dsecd was built without its guest programs");
  DSEC_TRY(const auto socket, listen_at(paths.launcher_socket()));
  DSEC_TRY(const auto state, sys::open_directory(paths.state()));
  // Executable by all and readable by none: aether is never dumpable.
  DSEC_TRY(const auto aether, sys::sealed_memfd("aether", base::embedded_aether(), 0111));
  std::vector<int> fds{socket.get(), state.get(), aether.get()};
  if (layers_ns >= 0) fds.push_back(layers_ns);
  DSEC_TRY(const auto pid, spawn(paths.state(), fds));
  auto pidfd = sys::open_pidfd(pid);
  if (!pidfd) {
    // Not collected yet, so the number is still this child's.
    ::kill(pid, SIGKILL);
    collect(pid);
    return fail(pidfd.error());
  }
  return launcher_process(pid, std::move(*pidfd), true);
}

result<launcher_process> launcher_process::take_over(pid_t pid) {
  DSEC_TRY(auto pidfd, sys::open_pidfd(pid));
  return launcher_process(pid, std::move(pidfd), false);
}

launcher_process::~launcher_process() {
  if (const auto ended = end(); !ended)
    base::log::error("launcher_left", {{"pid", pid_}, {"error", ended.error().to_string()}});
}

result<unique_fd> launcher_process::connect(const base::paths& paths) {
  return sys::connect_datagram(paths.launcher_socket());
}

result<void> launcher_process::end() {
  if (pid_ == 0) return {};
  DSEC_CHECK(sys::signal_process(pidfd_.get(), SIGKILL));
  if (!sys::wait_ended(pidfd_.get(), sys::after(death_timeout)))
    return fail(errc::deadline_exceeded,
                "the launcher, process " + std::to_string(pid_) + ", does not die");
  if (is_child_) collect(pid_);
  leave();
  return {};
}

void launcher_process::leave() {
  pid_ = 0;
  pidfd_.reset();
}

}  // namespace dsec::container

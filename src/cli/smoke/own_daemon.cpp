#include "cli/smoke/own_daemon.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

#include "backends/sys/file.hpp"
#include "backends/sys/pidfd.hpp"
#include "base/paths.hpp"

namespace dsec::cli::smoke {
namespace {

using base::errc;
using base::fail;
using base::fail_errno;

constexpr std::chrono::seconds start_patience{30};
constexpr std::chrono::milliseconds look_again{5};

/// Its own state directory, whatever DSEC_STATE says.
[[noreturn]] void become_daemon(const char* file, const char* state, int log) {
  // It must not outlive a smoke test that is killed; sandboxes end with the next one.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  sigset_t none;
  sigemptyset(&none);
  ::pthread_sigmask(SIG_SETMASK, &none, nullptr);
  ::dup2(log, STDOUT_FILENO);
  ::dup2(log, STDERR_FILENO);
  ::setsid();
  ::execl("/proc/self/exe", "dsecd", "serve", "--config", file, "--state", state,
          static_cast<char*>(nullptr));
  ::_exit(127);
}

bool has_ended(pid_t pid, int& status) {
  return ::waitpid(pid, &status, WNOHANG) == pid;
}

std::string end_of(const std::filesystem::path& log) {
  constexpr std::size_t most = 600;
  const auto text = sys::read_file(log);
  if (!text) return "nothing";
  return text->substr(text->size() - std::min(text->size(), most));
}

}  // namespace

base::result<own_daemon> own_daemon::start(const base::config& c, const std::filesystem::path& file,
                                           const std::filesystem::path& log) {
  const auto url = base::paths(c.state).url();
  ::unlink(url.c_str());  // of the one before: it says when the new one serves
  DSEC_TRY(const auto to, sys::open_at(AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND, 0600));
  const pid_t pid = ::fork();
  if (pid < 0) return fail_errno("fork");
  if (pid == 0) become_daemon(file.c_str(), c.state.c_str(), to.get());
  own_daemon made(pid);
  const auto until = sys::after(start_patience);
  std::error_code bad;
  while (!std::filesystem::exists(url, bad)) {
    int status = 0;
    if (has_ended(pid, status)) {
      made.pid_ = 0;
      return fail(errc::unavailable, "dsecd does not start: " + end_of(log));
    }
    if (std::chrono::steady_clock::now() > until)
      return fail(errc::deadline_exceeded, "dsecd does not serve in time: " + end_of(log));
    std::this_thread::sleep_for(look_again);
  }
  return made;
}

void own_daemon::kill() {
  if (pid_ == 0) return;
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
}

base::result<void> own_daemon::end(int signal, std::chrono::milliseconds patience) {
  if (::kill(pid_, signal) != 0) return fail_errno("cannot signal dsecd");
  const auto until = sys::after(patience);
  int status = 0;
  while (!has_ended(pid_, status)) {
    if (std::chrono::steady_clock::now() > until) {
      kill();
      return fail(errc::deadline_exceeded, "dsecd did not end in time and was killed");
    }
    std::this_thread::sleep_for(look_again);
  }
  pid_ = 0;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return fail(errc::internal, "dsecd ended with wait status " + std::to_string(status));
}

}  // namespace dsec::cli::smoke

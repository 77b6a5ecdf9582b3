#include "cli/doctor/apart.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>

#include "backends/sys/pidfd.hpp"
#include "backends/sys/unique_fd.hpp"

namespace dsec::cli::doctor {
namespace {

using base::errc;
using base::fail;
using base::fail_errno;

constexpr std::chrono::seconds patience{10};
constexpr std::chrono::seconds last_patience{2};  // of one that was killed
// The first byte of an answer.
constexpr char went_well = '+', failed = '-';

base::result<std::string> in_own_namespace(const probe& p) {
  // Without the second call mounts made here would show up in the host's namespace (shared
  // propagation, mount_namespaces(7)).
  if (::unshare(CLONE_NEWNS) != 0 ||
      ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return fail_errno("cannot make a mount namespace");
  return p();
}

[[noreturn]] void answer_from_child(const probe& p, int to) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto found = in_own_namespace(p);
  const auto text = found ? went_well + *found : failed + found.error().sentence();
  const auto written = ::write(to, text.data(), text.size());
  ::_exit(written == static_cast<ssize_t>(text.size()) ? 0 : 1);
}

/// Until the child closes its end.
base::result<std::string> read_answer(int from) {
  const auto until = sys::after(patience);
  std::string answer;
  std::array<char, 4096> piece{};
  while (true) {
    pollfd ready{from, POLLIN, 0};
    const int n = ::poll(&ready, 1, sys::remaining_ms(until));
    if (n == 0) return fail(errc::deadline_exceeded, "it does not end");
    if (n < 0 && errno == EINTR) continue;
    const auto got = ::read(from, piece.data(), piece.size());
    if (got < 0) return fail_errno("cannot read the answer of a probe");
    if (got == 0) return answer;
    answer.append(piece.data(), static_cast<std::size_t>(got));
  }
}

/// False: it is left behind, and dies with what holds it.
bool end_child(pid_t child) {
  const auto until = sys::after(last_patience);
  ::kill(child, SIGKILL);
  while (true) {
    const auto done = ::waitpid(child, nullptr, WNOHANG);
    if (done == child || (done < 0 && errno != EINTR)) return true;
    if (sys::remaining_ms(until) == 0) return false;
    ::poll(nullptr, 0, 1);
  }
}

}  // namespace

base::result<std::string> apart(const probe& p) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno("pipe2");
  const sys::unique_fd from(ends[0]);
  sys::unique_fd to(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return fail_errno("fork");
  if (child == 0) answer_from_child(p, to.get());
  to.reset();
  auto answer = read_answer(from.get());
  // Nothing happens to one that has ended. One that waits for a disk does not even die.
  if (!end_child(child))
    return fail(errc::deadline_exceeded, "it does not end and cannot be killed");
  if (!answer) return answer;
  if (answer->empty()) return fail(errc::internal, "the probe died");
  const bool good = answer->front() == went_well;
  answer->erase(0, 1);
  if (!good) return fail(errc::unsupported, std::move(*answer));
  return answer;
}

}  // namespace dsec::cli::doctor

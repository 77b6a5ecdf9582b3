#include "base/subprocess.hpp"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "base/unique_fd.hpp"

namespace dsec::base {
namespace {

using clock = std::chrono::steady_clock;

constexpr std::size_t max_stdout_bytes = 1U << 20U;
constexpr std::size_t max_stderr_bytes = 8U << 10U;
constexpr std::size_t max_line_bytes = 4U << 10U;

struct pipe_ends {
  unique_fd read, write;
};

result<pipe_ends> make_pipe(int flags) {
  std::array<int, 2> fds{};
  if (::pipe2(fds.data(), O_CLOEXEC | flags) != 0) return fail_errno("pipe");
  return pipe_ends{unique_fd(fds[0]), unique_fd(fds[1])};
}

std::vector<char*> pointers(const std::vector<std::string>& strings) {
  std::vector<char*> out;
  out.reserve(strings.size() + 1);
  for (const auto& s : strings) out.push_back(const_cast<char*>(s.c_str()));
  out.push_back(nullptr);
  return out;
}

/// All the child needs, prepared before clone: afterwards only async-signal-safe calls are allowed,
/// since other threads may hold any lock.
struct child_plan {
  const char* program;
  char* const* argv;
  char* const* env;
  int out, err, status;
  pid_t parent;
  const int* drop;
  std::size_t drop_count;
  rlim_t max_file_bytes;
};

[[noreturn]] void give_up(const child_plan& plan) {
  const int number = errno;
  [[maybe_unused]] const auto n = ::write(plan.status, &number, sizeof number);
  ::_exit(127);
}

[[noreturn]] void run_child(const child_plan& plan) {
  // Ignored signals stay ignored over exec, and dsecd ignores SIGPIPE: tools must not.
  for (int s = 1; s < NSIG; ++s) ::signal(s, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) give_up(plan);
  // The parent may have died before the line above. In a new pid namespace it shows as 0.
  if (const auto p = ::getppid(); p != 0 && p != plan.parent) ::_exit(127);
  if (::setsid() < 0) give_up(plan);
  if (::geteuid() == 0) {
    for (std::size_t i = 0; i < plan.drop_count; ++i) {
      if (::prctl(PR_CAPBSET_DROP, plan.drop[i]) != 0) give_up(plan);
    }
  }
  if (plan.max_file_bytes > 0) {
    const rlimit limit{plan.max_file_bytes, plan.max_file_bytes};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) give_up(plan);
    ::signal(SIGXFSZ, SIG_IGN);  // EFBIG tells more
  }
  const int nothing = ::open("/dev/null", O_RDONLY);
  if (nothing < 0 || ::dup2(nothing, 0) < 0) give_up(plan);
  if (::dup2(plan.out, 1) < 0 || ::dup2(plan.err, 2) < 0) give_up(plan);
  if (::syscall(SYS_close_range, 3U, ~0U, CLOSE_RANGE_CLOEXEC) != 0) give_up(plan);
  ::execve(plan.program, plan.argv, plan.env);
  give_up(plan);
}

/// Ends the child and everything in its session's process group on destruction, and reaps it.
class child {
 public:
  child(pid_t pid, unique_fd pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}
  child(const child&) = delete;
  child& operator=(const child&) = delete;
  ~child() { end(); }

  [[nodiscard]] int pidfd() const { return pidfd_.get(); }

  /// Kills what still runs, reaps, and returns the exit status in the shell's form.
  int end() {
    if (pid_ < 0) return status_;
    // The child is not reaped yet, so neither its pid nor its group's can have been reused.
    ::kill(-pid_, SIGKILL);
    ::syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
    int raw = 0;
    while (::waitpid(pid_, &raw, 0) < 0 && errno == EINTR) {
    }
    pid_ = -1;
    status_ = WIFSIGNALED(raw) ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw);
    return status_;
  }

 private:
  pid_t pid_;
  unique_fd pidfd_;
  int status_ = 0;
};

/// Takes stderr in pieces and hands out lines; keeps the tail. A '\r' (progress bars) ends a line
/// as well.
class line_splitter {
 public:
  explicit line_splitter(const std::function<void(std::string_view)>& sink) : sink_(sink) {}

  void add(std::string_view piece) {
    for (const char c : piece) {
      if (c == '\n' || c == '\r') {
        flush();
      } else if (line_.size() < max_line_bytes) {
        line_ += c;
      }
    }
    tail_ += piece;
    if (tail_.size() > 2 * max_stderr_bytes) tail_.erase(0, tail_.size() - max_stderr_bytes);
  }

  void flush() {
    if (sink_ && !line_.empty()) sink_(line_);
    line_.clear();
  }

  std::string take_tail() {
    if (tail_.size() > max_stderr_bytes) tail_.erase(0, tail_.size() - max_stderr_bytes);
    return std::move(tail_);
  }

 private:
  const std::function<void(std::string_view)>& sink_;
  std::string line_;
  std::string tail_;
};

/// Reads what there is. Returns false at the end of the stream (or when nothing is left, for a
/// non-blocking fd).
template <class Sink>
bool drain(int fd, Sink&& sink) {
  std::array<char, 16384> buffer{};
  for (;;) {
    const auto n = ::read(fd, buffer.data(), buffer.size());
    if (n > 0) {
      sink(std::string_view(buffer.data(), static_cast<std::size_t>(n)));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    return n < 0 && errno == EAGAIN;
  }
}

result<pid_t> start(const subprocess_spec& spec, const child_plan& plan, int& pidfd) {
  clone_args args{};
  args.flags = CLONE_PIDFD | (spec.own_pid_namespace ? CLONE_NEWPID : 0U);
  args.pidfd = reinterpret_cast<std::uintptr_t>(&pidfd);
  args.exit_signal = SIGCHLD;
  const auto pid = ::syscall(SYS_clone3, &args, sizeof args);
  if (pid < 0) return fail_errno("start " + spec.argv[0] + ": clone3");
  if (pid == 0) run_child(plan);
  return static_cast<pid_t>(pid);
}

struct streams {
  unique_fd out, err;
};

/// Pumps both streams until the child has ended or the deadline passes; true when it has ended.
bool pump(const child& process, streams& s, clock::time_point deadline, std::string& out,
          line_splitter& lines) {
  const auto take_out = [&](std::string_view piece) {
    out.append(piece.substr(0, max_stdout_bytes - std::min(max_stdout_bytes, out.size())));
  };
  const auto take_err = [&](std::string_view piece) { lines.add(piece); };
  for (bool ended = false;;) {
    if (s.out && !drain(s.out.get(), take_out)) s.out.reset();
    if (s.err && !drain(s.err.get(), take_err)) s.err.reset();
    if (ended) return true;
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - clock::now());
    if (left.count() <= 0) return false;
    // poll(2) skips negative descriptors: a closed stream costs nothing.
    std::array<pollfd, 3> set{
        {{process.pidfd(), POLLIN, 0}, {s.out.get(), POLLIN, 0}, {s.err.get(), POLLIN, 0}}};
    ::poll(set.data(), set.size(), static_cast<int>(std::min<long long>(left.count() + 1, 60'000)));
    ended = set[0].revents != 0;
  }
}

}  // namespace

result<std::string> find_program(std::string_view name) {
  if (name.find('/') != std::string_view::npos) return std::string(name);
  const char* variable = std::getenv("PATH");
  std::string_view rest = variable != nullptr ? variable : "/usr/sbin:/usr/bin:/sbin:/bin";
  while (!rest.empty()) {
    const auto directory = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), directory.size() + 1));
    if (!directory.starts_with('/')) continue;  // never the working directory
    const auto candidate = std::filesystem::path(directory) / name;
    std::error_code ignored;
    if (std::filesystem::is_regular_file(candidate, ignored) &&
        ::access(candidate.c_str(), X_OK) == 0) {
      return candidate.string();
    }
  }
  return fail(errc::not_found, "program '" + std::string(name) + "' is not in PATH");
}

result<subprocess_result> run_subprocess(const subprocess_spec& spec) {
  if (spec.argv.empty() || spec.timeout.count() <= 0) {
    return fail(errc::internal, "run_subprocess: no program or no timeout");
  }
  DSEC_TRY(const auto program, find_program(spec.argv[0]));
  DSEC_TRY(auto out, make_pipe(O_NONBLOCK));
  DSEC_TRY(auto err, make_pipe(O_NONBLOCK));
  DSEC_TRY(auto status, make_pipe(0));
  // Only our ends are non-blocking; the child's are ordinary.
  for (const int fd : {out.write.get(), err.write.get()}) {
    if (::fcntl(fd, F_SETFL, 0) != 0) return fail_errno("fcntl");
  }
  const auto argv = pointers(spec.argv);
  const auto env = pointers(spec.env);
  const child_plan plan{program.c_str(),
                        argv.data(),
                        env.data(),
                        out.write.get(),
                        err.write.get(),
                        status.write.get(),
                        ::getpid(),
                        spec.drop_capabilities.data(),
                        spec.drop_capabilities.size(),
                        spec.max_file_bytes};
  const auto deadline = clock::now() + spec.timeout;
  int pidfd = -1;
  DSEC_TRY(const auto pid, start(spec, plan, pidfd));
  child process(pid, unique_fd(pidfd));
  out.write.reset();
  err.write.reset();
  status.write.reset();

  int failure = 0;
  ssize_t n = 0;
  do n = ::read(status.read.get(), &failure, sizeof failure);
  while (n < 0 && errno == EINTR);
  if (n == sizeof failure) return fail(from_errno("start " + program, failure));

  subprocess_result result;
  line_splitter lines(spec.on_stderr_line);
  streams s{std::move(out.read), std::move(err.read)};
  const bool ended = pump(process, s, deadline, result.out, lines);
  result.status = process.end();
  lines.flush();
  result.errors = lines.take_tail();
  if (!ended) {
    return fail(errc::deadline_exceeded, spec.argv[0] + " did not end within " +
                                             std::to_string(spec.timeout.count() / 1000) +
                                             " s and was killed");
  }
  return result;
}

}  // namespace dsec::base

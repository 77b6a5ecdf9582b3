#include "base/subprocess.hpp"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

#include "support/eventually.hpp"
#include "support/skip.hpp"
#include "support/temp_dir.hpp"

namespace {

using dsec::base::errc;
using dsec::base::run_subprocess;
using dsec::base::subprocess_spec;
using std::chrono::seconds;

subprocess_spec shell(std::string script, std::chrono::milliseconds timeout = seconds(20)) {
  subprocess_spec spec;
  spec.argv = {"sh", "-c", std::move(script)};
  spec.env = {"PATH=/usr/bin:/bin"};
  spec.timeout = timeout;
  return spec;
}

bool alive(pid_t pid) {
  return ::kill(pid, 0) == 0 || errno != ESRCH;
}

bool gone_within(pid_t pid, seconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (alive(pid)) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace

TEST_CASE("a program's status, output and errors come back apart") {
  const auto done = run_subprocess(shell("echo out; echo err >&2; exit 7"));
  REQUIRE(done);
  CHECK(done->status == 7);
  CHECK(done->out == "out\n");
  CHECK(done->errors == "err\n");
}

TEST_CASE("a program sees its own environment and nothing of ours") {
  ::setenv("DSEC_SECRET", "x", 1);
  auto spec = shell("env");
  spec.env.push_back("MINE=1");
  const auto done = run_subprocess(spec);
  REQUIRE(done);
  CHECK(done->out.find("MINE=1") != std::string::npos);
  CHECK(done->out.find("DSEC_SECRET") == std::string::npos);
}

TEST_CASE("a program inherits no descriptor and reads an empty input") {
  const int leaked = ::dup(0);  // without O_CLOEXEC, as careless code elsewhere would leave it
  const auto done = run_subprocess(shell("ls /proc/self/fd | wc -l; cat | wc -c"));
  ::close(leaked);
  REQUIRE(done);
  CHECK(done->out == "4\n0\n");  // 0, 1, 2 and the directory that ls reads
}

TEST_CASE("lines of stderr are handed over one by one, progress bars included") {
  std::vector<std::string> lines;
  auto spec = shell(R"(printf 'one\ntwo\rthree\n\nlast' >&2)");
  spec.on_stderr_line = [&](std::string_view line) { lines.emplace_back(line); };
  REQUIRE(run_subprocess(spec));
  CHECK(lines == std::vector<std::string>{"one", "two", "three", "last"});
}

TEST_CASE("output beyond the limits is dropped without blocking the program") {
  const auto done =
      run_subprocess(shell("head -c 3000000 /dev/zero; head -c 3000000 /dev/zero >&2"));
  REQUIRE(done);
  CHECK(done->status == 0);
  CHECK(done->out.size() == 1U << 20U);
  CHECK(done->errors.size() == 8U << 10U);
}

TEST_CASE("a program that exceeds its time is killed with its children") {
  const dsec::tests::temp_dir dir;
  const auto pid_file = dir / "pid";
  const auto begin = std::chrono::steady_clock::now();
  const auto done = run_subprocess(shell("sleep 300 & echo $! > " + pid_file.string() + "; wait",
                                         std::chrono::milliseconds(500)));
  REQUIRE_FALSE(done);
  CHECK(done.error().code == errc::deadline_exceeded);
  CHECK(std::chrono::steady_clock::now() - begin < seconds(10));
  CHECK(gone_within(std::stoi(dsec::tests::slurp(pid_file)), seconds(10)));
}

TEST_CASE("a child that keeps the pipes open does not hold up the result") {
  const auto begin = std::chrono::steady_clock::now();
  const auto done = run_subprocess(shell("sleep 300 & echo done"));
  REQUIRE(done);
  CHECK(done->out == "done\n");
  CHECK(std::chrono::steady_clock::now() - begin < seconds(10));
}

TEST_CASE("a program that is not there is not found") {
  auto spec = shell("");
  spec.argv = {"dsec-no-such-program"};
  const auto done = run_subprocess(spec);
  REQUIRE_FALSE(done);
  CHECK(done.error().code == errc::not_found);
  spec.argv = {"/nonexistent/program"};
  CHECK(run_subprocess(spec).error().code == errc::not_found);
}

TEST_CASE("a signal shows as 128 plus its number, and SIGPIPE is not ignored") {
  ::signal(SIGPIPE, SIG_IGN);
  CHECK(run_subprocess(shell("kill -TERM $$"))->status == 128 + SIGTERM);
  CHECK(run_subprocess(shell("kill -PIPE $$"))->status == 128 + SIGPIPE);
  ::signal(SIGPIPE, SIG_DFL);
}

TEST_CASE("what a killed caller ran dies with it") {
  const dsec::tests::temp_dir dir;
  const auto pid_file = dir / "pid";
  const pid_t caller = ::fork();
  REQUIRE(caller >= 0);
  if (caller == 0) {
    (void)run_subprocess(shell("echo $$ > " + pid_file.string() + ".new; mv " + pid_file.string() +
                               ".new " + pid_file.string() + "; exec sleep 300"));
    ::_exit(0);
  }
  const auto deadline = std::chrono::steady_clock::now() + seconds(20);
  while (!std::filesystem::exists(pid_file)) REQUIRE(std::chrono::steady_clock::now() < deadline);
  const pid_t tool = std::stoi(dsec::tests::slurp(pid_file));
  REQUIRE(alive(tool));
  ::kill(caller, SIGKILL);
  ::waitpid(caller, nullptr, 0);
  CHECK(gone_within(tool, seconds(10)));
}

TEST_CASE("in a pid namespace of its own even daemons end with the program") {
  if (::geteuid() != 0) {
    dsec::test::say_skipped("needs root");
    return;
  }
  const dsec::tests::temp_dir dir;
  const auto mark = dir / "beat";
  auto spec = shell("setsid sh -c 'while :; do date +%s%N > " + mark.string() +
                    "; done' & until [ -e " + mark.string() + " ]; do :; done");
  spec.own_pid_namespace = true;
  const auto done = run_subprocess(spec);
  REQUIRE(done);
  REQUIRE(done->status == 0);
  const auto last = dsec::tests::slurp(mark);
  // Long enough for dozens of beats, were it alive.
  CHECK_FALSE(dsec::test::eventually([&] { return dsec::tests::slurp(mark) != last; },
                                     std::chrono::milliseconds(100)));
}

TEST_CASE("a dropped capability is gone from the program") {
  if (::geteuid() != 0) {
    dsec::test::say_skipped("needs root");
    return;
  }
  auto spec = shell("grep -E 'CapBnd|CapEff' /proc/self/status");
  const auto before = run_subprocess(spec);
  spec.drop_capabilities = {21};  // CAP_SYS_ADMIN
  const auto after = run_subprocess(spec);
  REQUIRE(before);
  REQUIRE(after);
  const auto bits = [](const std::string& text, const char* key) {
    return std::stoull(text.substr(text.find(key) + 8), nullptr, 16);
  };
  for (const char* key : {"CapBnd:", "CapEff:"}) {
    CHECK((bits(before->out, key) >> 21U & 1U) == 1);
    CHECK((bits(after->out, key) >> 21U & 1U) == 0);
  }
}

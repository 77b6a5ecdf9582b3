// aether alone on the real kernel: what a command's life looks like from the channel.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <random>

#include "support/aether_sandbox.hpp"
#include "support/eventually.hpp"
#include "support/skip.hpp"

using namespace dsec;
using namespace dsec::tests;
using dsec::test::eventually;
using guest::exec_kind;
using guest::failure;
using guest::msg;
using std::chrono::milliseconds;

namespace {

failure why(const outcome& o) {
  REQUIRE(o.failed);
  return static_cast<failure>(o.failed->failure);
}

}  // namespace

TEST_CASE("programs end with their own exit codes and signals", "[kernel][aether]") {
  if (skipped()) return;
  aether_sandbox box;
  CHECK(box.run({.argv = {"true"}}).code() == 0);
  CHECK(box.run({.argv = {"/bin/false"}}).code() == 1);
  CHECK(box.sh("exit 7").code() == 7);
  CHECK(box.sh("kill -TERM $$").signal() == SIGTERM);
  const outcome o = box.sh("echo out; echo err >&2");
  CHECK(o.out == "out\n");
  CHECK(o.err == "err\n");
  CHECK(o.exited->total[0] == 4);
  CHECK(o.exited->flags == 0);
  CHECK(box.seen(msg::started) == 5);
}

TEST_CASE("what cannot be started says why", "[kernel][aether]") {
  if (skipped()) return;
  aether_sandbox box({.root = tree::tiny});
  const auto fails = [&](command c, failure expected, int number) {
    const outcome o = box.run(std::move(c));
    CHECK(why(o) == expected);
    CHECK(o.failed->sys_errno == number);
  };
  fails({.argv = {"no-such-program"}}, failure::exec, ENOENT);
  fails({.argv = {"/bin/no-such-program"}}, failure::exec, ENOENT);
  fails({.argv = {"/etc/passwd"}}, failure::exec, EACCES);
  fails({.argv = {"passwd"}, .env = {"PATH=/bin:/etc:/nowhere"}}, failure::exec, EACCES);
  fails({.argv = {""}}, failure::exec, ENOENT);
  fails({.argv = {"true"}, .cwd = "/nowhere"}, failure::bad_cwd, ENOENT);
  fails({.argv = {"true"}, .cwd = "/etc/passwd"}, failure::bad_cwd, ENOTDIR);
  fails({.argv = {"true"}, .user = "nobody-here"}, failure::bad_user, ENOENT);
  fails({.argv = {"true"}, .user = "joe:nogroup"}, failure::bad_user, ENOENT);
  fails({.argv = {"true"}, .user = "70000"}, failure::bad_user, EINVAL);
  fails({.argv = {"true"}, .cap = 4097}, failure::bad_request, EINVAL);
  CHECK(box.run({.argv = {"true"}}).ok());
}

TEST_CASE("a shell command needs a shell, a program does not", "[kernel][aether]") {
  if (skipped()) return;
  aether_sandbox box({.root = tree::bare});
  CHECK(why(box.sh("true")) == failure::no_shell);
  CHECK(box.run({.argv = {"/bin/busybox", "echo", "hello"}}).out == "hello\n");
  CHECK(box.run({.argv = {"busybox", "true"}, .env = {}}).ok());
}

TEST_CASE("output is exact to the byte", "[kernel][aether][C5][C6]") {
  if (skipped()) return;
  aether_sandbox box({.root = tree::tiny});
  std::mt19937 random(7);
  std::string bytes(300000, '\0');
  std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<char>(random()); });
  CHECK(box.run({.argv = {"cat"}, .input = bytes}).out == bytes);
  CHECK(box.run({.argv = {"sh", "-c", "cat >&2"}, .input = bytes}).err == bytes);
  CHECK(box.run({.argv = {"printf-missing"}}).failed);
  CHECK(box.run({.argv = {"busybox", "printf", "a\\n\\n\\nb\\r\\n\\r\\n"}}).out ==
        "a\n\n\nb\r\n\r\n");
}

TEST_CASE("more output than the cap keeps head and tail and counts all", "[kernel][aether][C2]") {
  if (skipped()) return;
  aether_sandbox box;
  const outcome o = box.run(
      {.argv = {"seq 10000000 10599999; exit 3"}, .kind = exec_kind::shell, .cap = 1U << 20U},
      milliseconds(60000));
  CHECK(o.code() == 3);
  CHECK(o.exited->total[0] == 5'400'000);
  REQUIRE(o.out.size() == 1U << 20U);
  CHECK(o.out.substr(0, 9) == "10000000\n");
  CHECK(o.out.substr(o.out.size() - 9) == "10599999\n");
}

TEST_CASE("a spool that had filled is cut to its first half when the disk takes no more",
          "[kernel][aether]") {
  constexpr std::uint64_t cap = 8192;
  const std::uint64_t room = GENERATE(0, cap - 1);  // the next write fails at once, or in its midst
  if (skipped()) return;
  aether_sandbox box;
  const auto id = box.start({.argv = {"seq 100000 120000; touch /tmp/filled; "
                                      "until test -e /tmp/go; do sleep 0.01; done; "
                                      "seq 200000 220000"},
                             .kind = exec_kind::shell,
                             .cap = cap});
  // A pipe holds 64 KiB: most of it has gone through the ring.
  REQUIRE(box.sh("until test -e /tmp/filled; do sleep 0.01; done").ok());
  box.limit_file_size(room);
  REQUIRE(box.sh("touch /tmp/go").ok());
  const outcome o = box.wait(id);
  CHECK(o.code() == 0);
  REQUIRE(o.exited);
  CHECK(o.exited->total[0] == 2 * 20001 * 7);
  std::string all;
  for (int i = 100000; i <= 120000; ++i) all += std::to_string(i) + "\n";
  CHECK(o.out == all.substr(0, cap / 2));
}

TEST_CASE("a command over its time limit dies with all it started", "[kernel][aether][C3]") {
  if (skipped()) return;
  aether_sandbox box;
  const outcome o = box.run({.argv = {"sleep 300 & setsid sleep 301 & echo on; wait"},
                             .kind = exec_kind::shell,
                             .timeout = milliseconds(1000)});
  REQUIRE(o.exited);
  CHECK(o.exited->flags == guest::exited_timed_out);
  CHECK(o.signal() == SIGKILL);
  CHECK(o.out == "on\n");
  CHECK(o.exited->duration_us >= 1'000'000);
  CHECK(o.exited->duration_us < 5'000'000);
  CHECK(eventually([&] { return box.processes("cmd").empty(); }, milliseconds(1000)));
  CHECK(box.run({.argv = {"true"}}).ok());
}

TEST_CASE("what a command leaves running goes when it ends", "[kernel][aether]") {
  if (skipped()) return;
  aether_sandbox box;
  const outcome o = box.sh("setsid sleep 300 & echo started; exit 4");
  CHECK(o.code() == 4);
  CHECK(o.exited->flags == 0);
  CHECK(o.out == "started\n");
  CHECK(eventually([&] { return box.processes("cmd").empty(); }, milliseconds(1000)));
}

TEST_CASE("kill ends one command, kill_all ends all", "[kernel][aether]") {
  if (skipped()) return;
  aether_sandbox box;
  const auto a = box.start({.argv = {"sleep", "300"}});
  const auto b = box.start({.argv = {"setsid sleep 300; true"}, .kind = exec_kind::shell});
  const auto c = box.start({.argv = {"sleep", "300"}});
  for (const auto& id : {a, b, c}) REQUIRE(box.wait_started(id));
  box.send_id(msg::kill, b);
  const outcome killed = box.wait(b);
  CHECK(killed.signal() == SIGKILL);
  CHECK(killed.exited->flags == guest::exited_killed);
  CHECK(box.seen(msg::exited) == 1);
  box.send_plain(msg::kill_all);
  for (const auto& id : {a, c}) CHECK(box.wait(id).exited->flags == guest::exited_killed);
  box.send_id(msg::kill, "never-heard-of");
  CHECK(eventually(
      [&] {
        box.pump(milliseconds(10));
        return box.seen(msg::unknown, "never-heard-of") == 1;
      },
      milliseconds(2000)));
  CHECK(eventually([&] { return box.processes("cmd").empty(); }, milliseconds(1000)));
}

TEST_CASE("a known id is answered with its state and never started twice", "[kernel][aether]") {
  if (skipped()) return;
  aether_sandbox box;
  const command once = {.id = "once",
                        .argv = {"echo x >> /tmp/log; sleep 0.2; wc -l < /tmp/log"},
                        .kind = exec_kind::shell};
  box.start(once);
  REQUIRE(box.wait_started("once"));
  box.start(once);
  CHECK(box.wait("once").out == "1\n");
  CHECK(box.seen(msg::started, "once") == 2);
  box.start(once);
  CHECK(eventually(
      [&] {
        box.pump(milliseconds(10));
        return box.seen(msg::exited, "once") == 2;
      },
      milliseconds(2000)));
  CHECK(box.run({.argv = {"cat", "/tmp/log"}}).out == "x\n");
  box.send_id(msg::query, "once");
  box.send_id(msg::forget, "once");
  box.send_id(msg::query, "once");
  CHECK(eventually(
      [&] {
        box.pump(milliseconds(10));
        return box.seen(msg::exited, "once") == 3 && box.seen(msg::unknown, "once") == 1;
      },
      milliseconds(2000)));
}

TEST_CASE("a new dsecd gets again what was not acknowledged", "[kernel][aether]") {
  if (skipped()) return;
  aether_sandbox box;
  box.acknowledge(false);
  for (const char* id : {"a", "b", "c"}) CHECK(box.run({.id = id, .argv = {"true"}}).ok());
  const auto running = box.start({.id = "d", .argv = {"sleep", "300"}});
  REQUIRE(box.wait_started(running));
  const auto last = box.last_seq();
  CHECK(last == 7);

  const guest::hello_body hello = box.reconnect(2);  // a is known to the new one
  CHECK(hello.version == guest::channel_version);
  CHECK(hello.commands == 1);
  CHECK(eventually(
      [&] {
        box.pump(milliseconds(10));
        return box.seen(msg::started, "d") == 2;
      },
      milliseconds(2000)));
  CHECK(box.seen(msg::exited, "a") == 1);
  CHECK(box.seen(msg::exited, "b") == 2);
  CHECK(box.seen(msg::exited, "c") == 2);
  CHECK(box.last_seq() == last);

  box.reconnect(last);  // and this one knows all
  box.send_plain(msg::ping);
  CHECK(eventually(
      [&] {
        box.pump(milliseconds(10));
        return box.seen(msg::pong) == 1;
      },
      milliseconds(2000)));
  CHECK(box.seen(msg::exited, "c") == 2);
  box.send_plain(msg::kill_all);
  CHECK(box.wait("d").exited->flags == guest::exited_killed);
}

TEST_CASE("when the channel ends all is gone within a second", "[kernel][aether]") {
  if (skipped()) return;
  aether_sandbox box;
  const auto id = box.start(
      {.argv = {"for i in $(seq 20); do setsid sleep 300 & done; wait"}, .kind = exec_kind::shell});
  REQUIRE(box.wait_started(id));
  REQUIRE(eventually([&] { return box.processes("cmd").size() >= 20; }, milliseconds(15000)));
  box.hang_up();
  const auto status = box.wait_end(milliseconds(1000));
  REQUIRE(status);
  CHECK(WIFEXITED(*status));
  CHECK(WEXITSTATUS(*status) == 0);
  CHECK(box.processes("cmd").empty());
  CHECK(box.processes("init").empty());
}

TEST_CASE("a command runs as its user, in its directory, with what it was given",
          "[kernel][aether]") {
  if (skipped()) return;
  aether_sandbox box({.root = tree::tiny});
  const auto id_of = [&](const std::string& user) {
    return box.run({.argv = {"id"}, .user = user}).out;
  };
  CHECK(id_of("root") == "uid=0(root) gid=0(root)\n");
  CHECK(id_of("joe") == "uid=1000(joe) gid=1000(joe) groups=2000(team)\n");
  CHECK(id_of("1000") == "uid=1000(joe) gid=1000(joe) groups=2000(team)\n");
  CHECK(id_of("joe:team") == "uid=1000(joe) gid=2000(team)\n");
  CHECK(id_of("1234") == "uid=1234 gid=0(root)\n");
  CHECK(id_of("1234:55") == "uid=1234 gid=55\n");
  CHECK(box.run({.argv = {"pwd"}, .cwd = "/etc"}).out == "/etc\n");
  CHECK(box.run({.argv = {"/bin/env"}, .env = {"A=1", "B=two words"}}).out ==
        "A=1\nB=two words\nHOME=/root\n");
  CHECK(box.run({.argv = {"/bin/env"}, .env = {"HOME=/x"}, .user = "joe"}).out == "HOME=/x\n");
  CHECK(box.run({.argv = {"/bin/env"}, .env = {}, .user = "joe"}).out == "HOME=/home/joe\n");
  CHECK(box.run({.argv = {"/bin/env"}, .env = {}, .user = "0:0"}).out == "HOME=/root\n");
  CHECK(box.run({.argv = {"/bin/env"}, .env = {}, .user = "1234"}).out == "HOME=/\n");
  const outcome limits = box.sh("ulimit -n; ulimit -c; umask; cat /proc/self/oom_score_adj");
  CHECK(limits.out == "4096\n0\n0022\n200\n");
  const std::string status = box.run({.argv = {"cat", "/proc/self/status"}}).out;
  INFO(status);
  CHECK(status.find("SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n") != std::string::npos);
  CHECK(status.find("NoNewPrivs:\t0\n") != std::string::npos);
  CHECK(box.run({.argv = {"cat"}}).ok());  // no stdin given: end of file at once
}

TEST_CASE("output can be opened again by name", "[kernel][aether]") {
  if (skipped()) return;
  aether_sandbox box;
  CHECK(box.sh("echo a > /dev/stdout; echo b > /proc/self/fd/2").out == "a\n");
  CHECK(box.run({.argv = {"echo c > /proc/self/fd/1"}, .kind = exec_kind::shell, .user = "1234"})
            .out == "c\n");
}

TEST_CASE("no descriptor of aether or its spawner reaches a command", "[kernel][aether]") {
  if (skipped()) return;
  aether_sandbox box;
  const auto sleeper =
      box.start({.argv = {"sleep", "300"}});  // its pipes are open in aether meanwhile
  REQUIRE(box.wait_started(sleeper));
  for (int i = 0; i < 10; ++i) {
    CHECK(box.run({.argv = {"ls", "/proc/self/fd"}}).out == "0\n1\n2\n3\n");  // 3 is the directory
  }
}

TEST_CASE("large arguments travel in a memory file", "[kernel][aether]") {
  if (skipped()) return;
  aether_sandbox box;
  const std::string big(100000, 'x');
  CHECK(box.run({.argv = {"sh", "-c", "echo ${#1}", "sh", big}}).out == "100000\n");
  command many = {.argv = {"sh", "-c", "echo $#", "sh"}};
  for (int i = 0; i < 5000; ++i) many.argv.push_back("");
  CHECK(box.run(many).out == "5000\n");
  CHECK(box.run({.argv = {"echo", "small"}, .payload = true}).out == "small\n");
  many.argv.assign(200, std::string(120000, 'y'));
  many.argv[0] = "true";
  CHECK(why(box.run(many)) == failure::bad_request);  // more than 8 MiB
}

TEST_CASE("files are read and written with the user's rights", "[kernel][aether]") {
  if (skipped()) return;
  aether_sandbox box({.root = tree::tiny});
  const auto write = [&](const std::string& path, const std::string& data,
                         const std::string& user = "root", std::uint64_t offset = 0,
                         std::uint32_t mode = 0640) {
    return box.run({.argv = {path},
                    .kind = exec_kind::write_file,
                    .user = user,
                    .input = data,
                    .offset = offset,
                    .mode = mode});
  };
  const auto read = [&](const std::string& path, std::uint64_t offset, std::uint64_t length,
                        const std::string& user = "root") {
    return box.run({.argv = {path},
                    .kind = exec_kind::read_file,
                    .user = user,
                    .offset = offset,
                    .length = length});
  };
  const auto size = [](const outcome& o) {
    std::int64_t n = -1;
    REQUIRE(o.err.size() == sizeof n);
    std::memcpy(&n, o.err.data(), sizeof n);
    return n;
  };
  std::string data(200000, 'a');
  for (std::size_t i = 0; i < data.size(); ++i) data[i] = static_cast<char>(i * 7);
  const outcome wrote = write("/tmp/new/deep/file", data, "joe", 0, 0640);
  REQUIRE(wrote.ok());
  CHECK(size(wrote) == 200000);
  CHECK(box.sh("busybox stat -c '%U %a' /tmp/new/deep /tmp/new/deep/file").out ==
        "joe 755\njoe 640\n");
  const outcome all = read("/tmp/new/deep/file", 0, 1U << 30U);
  CHECK(all.out == data);
  CHECK(size(all) == 200000);
  CHECK(read("/tmp/new/deep/file", 1000, 50).out == data.substr(1000, 50));
  CHECK(read("/tmp/new/deep/file", 300000, 50).out.empty());
  CHECK(size(write("/tmp/new/deep/file", "xyz", "joe", 10)) == 200000);
  CHECK(read("/tmp/new/deep/file", 9, 5).out == data.substr(9, 1) + "xyz" + data.substr(13, 1));
  CHECK(size(write("/tmp/new/deep/file", "new", "joe")) == 3);
  CHECK(write("relative", "1").ok());
  CHECK(read("/relative", 0, 9).out == "1");
  CHECK(read("/proc/self/status", 0, 1U << 20U).out.find("Name:") == 0);

  const outcome full = write("/tmp/big", std::string(20U << 20U, 'b'));
  CHECK(full.code() == ENOSPC);
  CHECK(full.err.empty());

  const auto refused = [&](const outcome& o) {
    CHECK(why(o) == failure::exec);
    return o.failed->sys_errno;
  };
  CHECK(refused(read("/tmp/missing", 0, 1)) == ENOENT);
  CHECK(refused(read("/tmp", 0, 1)) == EISDIR);
  CHECK(refused(write("/tmp", "x")) == EISDIR);
  CHECK(refused(read("/tmp/new/deep/file", 0, 1, "1234")) == EACCES);
  CHECK(refused(write("/etc/passwd", "x", "joe")) == EACCES);
  CHECK(refused(write("/etc/new/x", "x", "joe")) == EACCES);
  REQUIRE(box.run({.argv = {"mkfifo", "/tmp/fifo"}}).ok());
  CHECK(refused(read("/tmp/fifo", 0, 1)) == EINVAL);
  CHECK(refused(write("/tmp/fifo", "x")) == ENXIO);
  CHECK(refused(read("/dev/null", 0, 1)) == EINVAL);
  CHECK(refused(read("/proc/self/root/etc/passwd", 0, 1)) == ELOOP);
}

TEST_CASE("a hundred commands at once, none lost", "[kernel][aether]") {
  if (skipped()) return;
  aether_sandbox box({.root = tree::tiny});
  std::vector<std::string> ids;
  for (int i = 0; i < 100; ++i) {
    const std::string script = "echo " + std::to_string(i) + "; exit " + std::to_string(i % 50);
    ids.push_back(box.start({.argv = {"sh", "-c", script}}));
  }
  for (int i = 0; i < 100; ++i) {
    const outcome o = box.wait(ids[static_cast<std::size_t>(i)], milliseconds(30000));
    CHECK(o.code() == i % 50);
    CHECK(o.out == std::to_string(i) + "\n");
  }
}

TEST_CASE("more starts than the spawner's socket holds wait for their turn", "[kernel][aether]") {
  if (skipped()) return;
  aether_sandbox box({.root = tree::tiny});
  const auto processes = box.processes("init");
  REQUIRE(processes.size() == 2);
  const pid_t spawner = processes[0] == box.pid() ? processes[1] : processes[0];
  REQUIRE(::kill(spawner, SIGSTOP) == 0);
  std::vector<std::string> ids;
  const command big = {.argv = {"true"}, .env = {"PATH=/bin", "BIG=" + std::string(50000, 'x')}};
  for (int i = 0; i < 20; ++i) ids.push_back(box.start(big));
  REQUIRE(::kill(spawner, SIGCONT) == 0);
  for (const auto& id : ids) CHECK(box.wait(id).ok());
  CHECK(box.seen(msg::degraded) == 0);
}

TEST_CASE("256 commands run at once, more are refused", "[kernel][aether]") {
  if (skipped()) return;
  aether_sandbox box({.root = tree::tiny});
  std::vector<std::string> ids;
  for (int i = 0; i < 260; ++i) ids.push_back(box.start({.argv = {"sleep", "300"}}));
  for (std::size_t i = 256; i < 260; ++i) {
    const outcome o = box.wait(ids[i], milliseconds(60000));
    CHECK(why(o) == failure::resources);
    CHECK(o.failed->sys_errno == EAGAIN);
  }
  for (std::size_t i = 0; i < 256; ++i) REQUIRE(box.wait_started(ids[i], milliseconds(60000)));
  box.send_plain(msg::kill_all);
  for (std::size_t i = 0; i < 256; ++i) {
    CHECK(box.wait(ids[i], milliseconds(60000)).exited->flags == guest::exited_killed);
  }
  CHECK(box.run({.argv = {"true"}}).ok());
}

TEST_CASE("nothing is left open, whatever becomes of commands and datagrams", "[kernel][aether]") {
  if (skipped()) return;
  aether_sandbox box({.root = tree::tiny});
  REQUIRE(box.run({.argv = {"true"}}).ok());
  const auto before = box.open_files();
  CHECK(before <= 20);
  for (int i = 0; i < 20; ++i) {
    CHECK(box.run({.argv = {"true"}}).ok());
    CHECK(box.run({.argv = {"nothing-of-the-kind"}}).failed);
    CHECK(box.run({.argv = {"true"}, .cap = 1}).failed);
    CHECK(box.run({.argv = {"sleep", "9"}, .timeout = milliseconds(5)}).exited);
    CHECK(box.run({.argv = {"/etc/passwd"}, .kind = exec_kind::read_file, .length = 5}).ok());
  }
  for (const std::size_t fds : {0U, 1U, 4U, 9U}) {
    box.send_raw("x", fds);
    box.send_raw(std::string(100, '\0'), fds);
    box.send_raw(std::string(70000, 'y'), fds);
    std::string exec(
        144, '\0');  // a header of the right length, and an id, but nothing else that is right
    exec[0] = 3;
    exec[4] = static_cast<char>(144);
    exec[16] = 'i';
    box.send_raw(exec, fds);
  }
  CHECK(box.run({.argv = {"true"}}).ok());
  CHECK(box.seen(msg::failed, "i") == 4);
  CHECK(eventually([&] { return box.open_files() <= before; }, milliseconds(2000)));
  CHECK(eventually([&] { return box.processes("init").size() == 2; }, milliseconds(2000)));
  CHECK(box.processes("cmd").empty());
}

TEST_CASE("results that nobody acknowledges bound what is accepted", "[aether]") {
  if (skipped()) return;
  aether_sandbox box({.root = tree::tiny});
  box.acknowledge(false);
  int accepted = 0;
  bool full = false;
  for (int i = 0; i < 3000 && !full; ++i) {
    const outcome o = box.run({.id = "n" + std::to_string(i), .argv = {"/nothing"}});
    REQUIRE(o.failed);
    full = why(o) == failure::resources;
    accepted += full ? 0 : 1;
  }
  REQUIRE(full);
  CHECK(accepted == 1280);  // all that can be remembered
  box.acknowledge(true);
  CHECK(box.run({.argv = {"true"}}).ok());
  box.send_id(msg::query, "n0");  // made room for it
  box.send_id(msg::query, "n1000");
  CHECK(eventually(
      [&] {
        box.pump(milliseconds(10));
        return box.seen(msg::unknown, "n0") == 1 && box.seen(msg::failed, "n1000") == 2;
      },
      milliseconds(2000)));
}

TEST_CASE("want of memory ends one command's whole group and is that command's alone",
          "[kernel][aether][threat-7]") {
  if (skipped()) return;
  if (!aether_sandbox::memory_by_command()) {
    dsec::test::say_skipped("memory is counted per sandbox on version 1");
    return;
  }
  aether_sandbox box({.memory_bytes = 64U << 20U});
  const auto neighbour =
      box.start({.argv = {"while [ ! -e /tmp/go ]; do sleep 0.05; done; kill -9 $$"},
                 .kind = exec_kind::shell});
  REQUIRE(box.wait_started(neighbour));
  // The parent would live on, and so would its other child.
  const outcome o = box.sh("sleep 300 & python3 -c 'x = bytearray(300 << 20)'; echo survived",
                           milliseconds(30000));
  CHECK(o.signal() == SIGKILL);
  CHECK(o.out.empty());
  CHECK(o.exited->flags == guest::exited_oom);
  CHECK(box.run({.argv = {"touch", "/tmp/go"}}).ok());
  const outcome other = box.wait(neighbour);
  CHECK(other.signal() == SIGKILL);
  CHECK(other.exited->flags == 0);
  // A group that had it is not used again.
  for (int i = 0; i < 6; ++i) CHECK(box.sh("kill -9 $$").exited->flags == 0);
}

TEST_CASE("a command over its memory limit is reported as such", "[kernel][aether][C11]") {
  if (skipped()) return;
  if (!aether_sandbox::memory_controller()) {
    dsec::test::say_skipped("no memory controller");
    return;
  }
  aether_sandbox box({.memory_bytes = 64U << 20U});
  const outcome o =
      box.run({.argv = {"python3", "-c", "x = bytearray(300 << 20)"}}, milliseconds(30000));
  CHECK(o.signal() == SIGKILL);
  CHECK(o.exited->flags == guest::exited_oom);
  const outcome by_shell = box.run(
      {.argv = {"python3 -c 'x = bytearray(300 << 20)'; exit $?"}, .kind = exec_kind::shell},
      milliseconds(30000));
  if (aether_sandbox::memory_by_command()) {
    CHECK(by_shell.signal() == SIGKILL);
  } else {
    CHECK(by_shell.code() == 137);
  }
  CHECK(by_shell.exited->flags == guest::exited_oom);
  const outcome own = box.sh("kill -9 $$");
  CHECK(own.signal() == SIGKILL);
  CHECK(own.exited->flags == 0);
  CHECK(box.run({.argv = {"true"}}).ok());
}

// The container backend on the real kernel: what a sandbox is and what its commands get. Needs
// root.
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "backends/container/probe.hpp"
#include "backends/sys/file.hpp"
#include "base/failpoint.hpp"
#include "earlier_daemon.hpp"

using namespace dsec;
using namespace dsec::test;
using base::errc;

TEST_CASE("a sandbox starts, runs commands and stops", "[kernel][container]") {
  container_rig rig;
  auto box = rig.start("one");
  const auto r = box.run(program({"/bin/echo", "hello"}));
  REQUIRE(r.exited);
  CHECK(r.code() == 0);
  CHECK(r.out == "hello\n");
  CHECK(r.err.empty());
  CHECK(r.exited->stdout_total == 6);
  const auto s = box.sh("id -u; hostname; pwd; echo oops >&2; exit 7");
  CHECK(s.code() == 7);
  CHECK(s.out == "0\none\n/\n");
  CHECK(s.err == "oops\n");
  box.stop();
  box.stop();  // idempotent
  auto late = program({"/bin/true"});
  late.id = "late";
  CHECK(box->exec(late).error().code == errc::wrong_phase);
  CHECK(box->usage().error().code == errc::wrong_phase);
  CHECK(box.events().times_gone() == 0);
}

TEST_CASE("an image without libc and shell works", "[kernel][container]") {
  container_rig rig;
  auto box = rig.start(container_rig::spec("bare", "bare"));
  CHECK(box.run(program({"/attack", "say", "hi"})).out == "hi\n");
  const auto shell = box.sh("true");
  REQUIRE(shell.failed);
  CHECK(shell.failed->code == errc::no_shell);
  box.stop();
}

TEST_CASE("environment, directory, user, input and long arguments reach the command",
          "[kernel][container]") {
  container_rig rig;
  auto box = rig.start("args");
  auto spec = shell("echo $A-$B; pwd; id -u; cat");
  spec.env = {"PATH=/bin", "A=1", "B=x y"};
  spec.cwd = "/tmp";
  spec.user = "joe";
  spec.stdin_data = "given\n";
  CHECK(box.run(spec).out == "1-x y\n/tmp\n1000\ngiven\n");
  CHECK(box.run(program({"/bin/cat"})).code() == 0);  // no input: end of file at once
  auto stdin_again = program({"/bin/cat", "/dev/stdin"});
  stdin_again.stdin_data = "again";
  stdin_again.user = "joe";
  CHECK(box.run(stdin_again).out == "again");
  auto big = program({"/bin/sh", "-c", "echo ${#1}", "x", std::string(100'000, 'x')});
  CHECK(box.run(big).out == "100000\n");
  auto input = program({"/bin/wc", "-c"});
  input.stdin_data = std::string(50U << 20U, 'x');
  CHECK(box.run(input, 60s).out == "52428800\n");
  box.stop();
}

TEST_CASE("the empty input of a command is shared with no other sandbox and not with the host",
          "[kernel][container][threat-2]") {
  container_rig rig;
  auto one = rig.start("one"), two = rig.start("two");
  const auto holder = one.begin(program({"/attack", "lock-stdin", "120"}));
  const auto said = [&] {
    const auto piece = one->read_output(holder, backends::stream::out, 0, 100, std::nullopt);
    return piece ? piece->data : std::string();
  };
  REQUIRE(eventually([&] { return !said().empty(); }));
  CHECK(said() == "locked\n");
  CHECK(two.run(program({"/attack", "lock-stdin", "0"})).out == "locked\n");
  CHECK(one.run(program({"/attack", "lock-stdin", "0"})).out == "busy\n");  // its own /dev/null
  const auto host = sys::open_at(AT_FDCWD, "/dev/null", O_RDONLY);
  REQUIRE(host);
  CHECK(::flock(host->get(), LOCK_EX | LOCK_NB) == 0);
  REQUIRE(one->kill(holder));
  one.wait(holder);
  CHECK(one.sh("test -c /dev/stdin && cat && rm /dev/null && echo gone").out == "gone\n");
  CHECK(one.sh("cat && echo empty").out == "empty\n");
  CHECK(one.sh("mkdir /dev/null; true").code() == 0);
  CHECK(one.sh("echo still").out == "still\n");
  one.stop();
  two.stop();
}

TEST_CASE("commands that cannot start say why", "[kernel][container]") {
  container_rig rig;
  auto box = rig.start("fails");
  const auto missing = box.run(program({"/bin/nothing"}));
  REQUIRE(missing.failed);
  CHECK(missing.failed->code == errc::exec_failed);
  CHECK(missing.failed->message == "cannot run '/bin/nothing': No such file or directory");
  CHECK(box.run(program({"/etc/passwd"})).failed->message ==
        "cannot run '/etc/passwd': Permission denied");
  auto spec = program({"/bin/true"});
  spec.user = "nobody-here";
  CHECK(box.run(spec).failed->code == errc::exec_failed);
  spec = program({"/bin/true"});
  spec.cwd = "/nowhere";
  CHECK(box.run(spec).failed->message ==
        "cannot enter directory '/nowhere': No such file or directory");

  spec = program({"/bin/true"});
  spec.id = "../x";
  CHECK(box->exec(spec).error().code == errc::invalid_argument);
  spec.id = "twice";
  CHECK(box.run(spec).code() == 0);
  CHECK(box->exec(spec).error().code == errc::already_exists);
  box->forget("twice");
  CHECK(box->read_output("twice", backends::stream::out, 0, 1, 0).error().code == errc::not_found);
  CHECK(box->kill("twice").error().code == errc::not_found);
  box.stop();
}

TEST_CASE("files are read and written with the errors of file calls", "[kernel][container]") {
  container_rig rig;
  auto box = rig.start("files");
  const auto file = [](backends::exec_kind kind, const std::string& path) {
    backends::exec_spec spec;
    spec.kind = kind;
    spec.argv = {path};
    return spec;
  };
  auto write = file(backends::exec_kind::write_file, "/root/a/b/c.txt");
  write.stdin_data = std::string(300'000, 'z');
  write.mode = 0600;
  CHECK(box.run(write).code() == 0);
  auto read = file(backends::exec_kind::read_file, "/root/a/b/c.txt");
  read.offset = 299'990;
  read.length = 100;
  const auto got = box.run(read);
  CHECK(got.code() == 0);
  CHECK(got.out == std::string(10, 'z'));
  REQUIRE(got.err.size() == 8);
  CHECK(box.sh("stat -c '%a %u %s' /root/a/b/c.txt").out == "600 0 300000\n");
  // What is on disk on the host carries the ids of inside.
  CHECK(std::filesystem::file_size(rig.scope().state / "sandboxes/files/upper/u/root/a/b/c.txt") ==
        300'000);

  auto missing = file(backends::exec_kind::read_file, "/missing");
  missing.length = 10;
  CHECK(box.run(missing).failed->code == errc::not_found);
  CHECK(box.run(file(backends::exec_kind::write_file, "/etc")).failed->code ==
        errc::invalid_argument);
  auto joe = file(backends::exec_kind::write_file, "/etc/x");
  joe.user = "joe";
  CHECK(box.run(joe).failed->code == errc::permission_denied);
  box.stop();
}

TEST_CASE("output beyond the cap is dropped in the middle and counted", "[kernel][container]") {
  container_rig rig;
  auto box = rig.start("flood");
  auto spec = shell("seq 1 200000");
  spec.output_cap = 100'000;
  const auto r = box.run(spec);
  CHECK(r.code() == 0);
  CHECK(r.exited->stdout_total == 1'288'895);
  CHECK(r.out.size() == 100'000);
  CHECK(r.out.substr(0, 4) == "1\n2\n");
  CHECK(r.out.substr(r.out.size() - 7) == "200000\n");
  box.stop();
}

TEST_CASE("a command that outlives its time is ended with all its children",
          "[kernel][container]") {
  container_rig rig;
  auto box = rig.start("late");
  auto spec = shell("echo first; setsid sleep 1000 & sleep 1000");
  spec.timeout = 1500ms;  // an emulated machine needs most of it to start the shell
  const auto r = box.run(spec);
  REQUIRE(r.exited);
  CHECK(r.exited->timed_out);
  CHECK(r.exited->signal == 9);
  CHECK(r.out == "first\n");
  CHECK(box.sh("ps | grep -c '[s]leep 1000'").out == "0\n");
  box.stop();
}

TEST_CASE("kill ends one command and no other", "[kernel][container]") {
  container_rig rig;
  auto box = rig.start("kills");
  const auto a = box.begin_sh("sleep 1000 & sleep 1000");
  const auto b = box.begin_sh("sleep 0.3; echo done");
  REQUIRE(box->kill(a));
  const auto killed = box.wait(a);
  REQUIRE(killed.exited);
  CHECK(killed.exited->killed);
  CHECK(killed.code() == 137);
  CHECK(box.wait(b).out == "done\n");
  box.stop();
}

TEST_CASE("limits are in force: memory", "[kernel][container]") {
  container_rig rig;
  auto spec = container_rig::spec("memory");
  spec.limits.memory_bytes = 64ULL << 20U;
  auto box = rig.start(spec);
  const auto r = box.run(program({"/attack", "memory", "200"}), 60s);
  REQUIRE(r.exited);
  CHECK(r.code() == 137);
  CHECK(r.exited->oom_killed);
  const auto next = box.run(program({"/attack", "memory", "10"}));
  CHECK(next.code() == 0);
  CHECK_FALSE(next.exited->oom_killed);
  box.stop();
}

TEST_CASE("limits are in force: processes", "[kernel][container]") {
  container_rig rig;
  auto spec = container_rig::spec("pids");
  spec.limits.pids = 20;
  auto box = rig.start(spec);
  const auto r = box.sh("for i in $(seq 1 40); do sleep 5 & done; echo all");
  CHECK(r.out.empty());
  CHECK(r.err.find("fork") != std::string::npos);
  CHECK(box.sh("echo fine").out == "fine\n");  // what it left was ended with it
  box.stop();
}

TEST_CASE("limits are in force: CPU and open files", "[kernel][container]") {
  container_rig rig;
  auto spec = container_rig::spec("cpu");
  spec.limits.cpu_millis = 200;
  spec.limits.nofile = 512;
  auto box = rig.start(spec);
  CHECK(box.sh("ulimit -n").out == "512\n");
  const auto id = box.begin(program({"/attack", "spin", "30"}));
  const auto before = box->usage();
  REQUIRE(before);
  const auto start = std::chrono::steady_clock::now();
  // CPU time is what is limited, so it is what is waited for.
  REQUIRE(eventually([&] { return box->usage()->cpu_usec > before->cpu_usec + 200'000; }, 30s));
  const auto took = std::chrono::steady_clock::now() - start;
  CHECK(took > 500ms);  // at a fifth of a CPU: one second, less what the first period gives away
  REQUIRE(box->kill(id));
  CHECK(box.wait(id).exited->killed);
  box.stop();
}

TEST_CASE("copying a flood of output is limited as the flood itself is",
          "[kernel][container][threat-8]") {
  container_rig rig;
  auto spec = container_rig::spec("flood");
  spec.limits.cpu_millis = 100;
  auto box = rig.start(spec);
  const auto used = [&] { return box->usage()->cpu_usec; };
  const auto id = box.begin_sh("cat /dev/zero & cat /dev/zero >&2 & yes & yes >&2 & wait");
  const auto start = std::chrono::steady_clock::now();
  const auto before = used();
  // 0.1 CPU for the commands and 0.3 at most for the copying: time enough passes for that much.
  REQUIRE(eventually([&] { return used() > before + 400'000; }, 60s));
  CHECK(std::chrono::steady_clock::now() - start > 700ms);
  CHECK(box.sh("echo fine").out == "fine\n");
  REQUIRE(box->kill(id));
  CHECK(box.wait(id).exited->killed);
  box.stop();
}

TEST_CASE("usage tells memory, processes and CPU time", "[kernel][container]") {
  container_rig rig;
  auto box = rig.start("usage");
  const auto idle = box->usage();
  REQUIRE(idle);
  CHECK(idle->tasks == 0);
  const auto id = box.begin(program({"/attack", "hold", "50"}));
  REQUIRE(eventually([&] { return box->usage()->memory_bytes > (50ULL << 20U); }));
  CHECK(box->usage()->tasks == 1);
  CHECK(box->usage()->memory_bytes < (90ULL << 20U));
  REQUIRE(box->kill(id));
  box.wait(id);
  box.stop();
}

TEST_CASE("a fork bomb ends when it is killed", "[kernel][container][threat-6]") {
  container_rig rig;
  auto spec = container_rig::spec("bomb");
  spec.limits.pids = 300;
  auto box = rig.start(spec);
  const auto id = box.begin(program({"/attack", "fork-bomb", "60"}));
  REQUIRE(eventually([&] { return box->usage()->tasks >= 250; }, 30s));
  REQUIRE(box->kill(id));
  CHECK(box.wait(id, 20s).exited->killed);
  CHECK(eventually([&] { return box->usage()->tasks == 0; }));
  CHECK(box.sh("echo alive").out == "alive\n");
  box.stop();
}

TEST_CASE("two layers stack and each sandbox writes for itself", "[kernel][container]") {
  container_rig rig;
  auto spec = container_rig::spec("stack");
  spec.layers.push_back({"layer-bare", box_image("bare")});
  auto box = rig.start(spec);
  auto other = rig.start("other");
  CHECK(box.sh("ls -d /bin /attack; echo mine > /mine").out == "/attack\n/bin\n");
  CHECK(other.sh("ls /mine").code() != 0);
  box.stop();
  other.stop();
}

TEST_CASE("the spools of a stopped sandbox stay, and nothing else", "[kernel][container]") {
  container_rig rig;
  const auto home = rig.scope().state / "sandboxes/kept";
  auto box = rig.start("kept");
  auto spec = program({"/bin/echo", "kept"});
  spec.id = "c";
  box.run(spec);
  box.stop();
  CHECK(box->read_output("c", backends::stream::out, 0, 10, 5)->data == "kept\n");
  CHECK_FALSE(std::filesystem::exists(home / "upper"));
  CHECK(std::filesystem::exists(home / "spool"));
}

TEST_CASE("every needed capability is found by the probe", "[kernel][container]") {
  container_rig rig;
  for (const auto& item : rig.backend().probe()) {
    INFO(item.what << ": " << item.detail);
    CHECK(item.have);
    CHECK_FALSE(item.detail.empty());
  }
  CHECK_FALSE(std::filesystem::exists(rig.scope().state / "probe"));
}

TEST_CASE("the probe tries the ids that sandboxes get", "[kernel][container]") {
  const container_rig rig({2, 64}, false);
  auto node = rig.node();
  node.uid_base = 0xffff'ff00;  // 65536 from here on are more than there are
  const auto found = container::probe_host(rig.scope().state, node);
  for (const auto& item : found) {
    INFO(item.what << ": " << item.detail);
    const bool needs_ids = item.what == "user namespaces" || item.what.find("a sandbox:") == 0;
    CHECK(item.have != needs_ids);
  }
}

#ifdef DSEC_FAILPOINTS
TEST_CASE("what a killed probe leaves is cleared by the next one", "[kernel][container]") {
  container_rig rig({2, 64}, false);
  REQUIRE(dies_in_child([&] {
    base::failpoint::arm("container.probe.handshake", "kill");
    container::probe_host(rig.scope().state, rig.node());
  }));
  const leak_scope probe{rig.scope().instance + "-probe", rig.scope().state / "probe"};
  REQUIRE(find_launcher(probe));
  rig.open();
  for (const auto& item : rig.backend().probe()) {
    INFO(item.what << ": " << item.detail);
    CHECK(item.have);
  }
  CHECK(eventually([&] { return find_leaks(probe).empty(); }));
  CHECK(find_leaks(probe) == std::vector<std::string>{});
}
#endif

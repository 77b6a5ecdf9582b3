// Root inside against aether and its spawner: every command still ends with a typed result in time,
// and when the attacker's group has been killed exec works.
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "support/aether_sandbox.hpp"
#include "support/eventually.hpp"

using namespace dsec;
using namespace dsec::tests;
using dsec::test::eventually;
using guest::exec_kind;
using guest::failure;
using guest::msg;

namespace {

using clock = std::chrono::steady_clock;
constexpr int slack =
    5;  // on the promises: an emulated machine under load is no excuse for a red test

milliseconds since(clock::time_point from) {
  return std::chrono::duration_cast<milliseconds>(clock::now() - from);
}

/// Signals every process named `spawner`.
std::string signal_spawner(const std::string& signal) {
  return "for p in /proc/[0-9]*; do read -r n < $p/comm; [ \"$n\" = spawner ] && kill -" + signal +
         " ${p#/proc/} && echo hit; done";
}

/// Runs `attacker` (root inside) beside commands that should end by themselves or by their time
/// limit.
void attack(const std::string& attacker, sandbox_options options = {}) {
  aether_sandbox box(options);
  const auto id = box.start({.id = "attacker", .argv = {"python3", "-u", "-c", attacker}});
  REQUIRE(box.wait_output(id));
  std::vector<std::string> ids;
  const auto from = clock::now();
  for (int i = 0; i < 100; ++i) {
    ids.push_back(box.start({.argv = {"true"}, .timeout = milliseconds(2000)}));
  }
  for (const auto& each : ids) {
    const outcome o = box.wait(each, milliseconds(slack * 5000) - since(from));
    CHECK((o.failed || o.exited));
  }
  CHECK(box.alive());
  box.send_id(msg::kill, id);
  CHECK(box.wait(id, milliseconds(slack * 5000)).exited->flags == guest::exited_killed);
  CHECK(eventually([&] { return box.run({.argv = {"true"}, .timeout = milliseconds(2000)}).ok(); },
                   milliseconds(slack * 5000)));
  for (int i = 0; i < 10; ++i) CHECK(box.run({.argv = {"true"}}).ok());
}

}  // namespace

TEST_CASE("root inside cannot reach aether", "[kernel][aether][threat-1]") {
  if (skipped()) return;
  aether_sandbox box;
  const outcome o = box.run({.argv = {"python3", "-c", R"(
import os, signal, ctypes
def denied(what, call):
    try: call()
    except (PermissionError, ProcessLookupError): return
    except OSError as e: print(what, e)
    else: print(what, 'allowed')
spawner = [p for p in os.listdir('/proc') if p.isdigit() and open(f'/proc/{p}/comm').read() == 'spawner\n'][0]
libc = ctypes.CDLL(None, use_errno=True)
def ptrace(pid):
    if libc.ptrace(16, int(pid), 0, 0) < 0: raise OSError(ctypes.get_errno(), '')
for s in (signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGTERM):
    denied(f'kill 1 {s}', lambda: os.kill(1, s))
for pid in ('1', spawner):
    for f in ('mem', 'environ', 'maps', 'fd/3', 'root', 'exe', 'oom_score_adj'):
        denied(f'{pid}/{f}', lambda: os.open(f'/proc/{pid}/{f}', os.O_RDWR))
    denied(f'fd of {pid}', lambda: os.listdir(f'/proc/{pid}/fd'))
    denied(f'ptrace {pid}', lambda: ptrace(pid))
denied('reboot', lambda: (_ for _ in ()).throw(OSError(1, '')) if libc.reboot(0x4321fedc) < 0 else None)
print('end')
)"}});
  CHECK(o.err.empty());
  CHECK(o.out == "end\n");
  CHECK(box.alive());
}

TEST_CASE("a killed spawner is replaced, running commands live on", "[kernel][aether][threat-1]") {
  if (skipped()) return;
  aether_sandbox box;
  const auto sleeper =
      box.start({.argv = {"read -t 1 < /dev/zero; sleep 1; echo done"}, .kind = exec_kind::shell});
  REQUIRE(box.wait_started(sleeper));
  for (int i = 0; i < 3; ++i) {
    CHECK(box.sh(signal_spawner("KILL")).out == "hit\n");
    // The next start may still be given to the one that is dying.
    CHECK(eventually([&] { return box.run({.argv = {"true"}}).ok(); }, milliseconds(slack * 3000)));
  }
  CHECK(box.seen(msg::degraded) == 3);
  CHECK(box.wait(sleeper).out == "done\n");
}

TEST_CASE("a stopped spawner fails what it was given and is replaced",
          "[kernel][aether][threat-1]") {
  if (skipped()) return;
  aether_sandbox box;
  CHECK(box.sh(signal_spawner("STOP")).out == "hit\n");
  const auto from = clock::now();
  const outcome o = box.run({.argv = {"true"}});
  REQUIRE(o.failed);
  CHECK(static_cast<failure>(o.failed->failure) == failure::spawner);
  CHECK(since(from) < milliseconds(slack * 2000));
  CHECK(box.run({.argv = {"true"}}).ok());
}

TEST_CASE("a spawner whose limits were changed is replaced", "[kernel][aether][threat-1]") {
  if (skipped()) return;
  aether_sandbox box;
  for (const char* limit : {"NOFILE", "NPROC", "STACK"}) {
    const std::string script = std::string(R"(
import os, resource
for p in os.listdir('/proc'):
    if p.isdigit() and open(f'/proc/{p}/comm').read() == 'spawner\n':
        resource.prlimit(int(p), resource.RLIMIT_)") +
                               limit + ", (0, 0)); print('hit')";
    CHECK(box.run({.argv = {"python3", "-c", script}}).out == "hit\n");
    INFO(limit);
    CHECK(eventually([&] { return box.run({.argv = {"true"}}).ok(); }, milliseconds(slack * 5000)));
  }
}

TEST_CASE("SIGSTOP for everybody in a loop", "[kernel][aether][threat-1]") {
  if (skipped()) return;
  attack(
      "import os, signal\nprint(1)\nwhile True:\n  try: os.kill(-1, signal.SIGSTOP)\n  except "
      "ProcessLookupError: pass");
}

TEST_CASE("SIGKILL for everybody in a loop", "[kernel][aether][threat-1]") {
  if (skipped()) return;
  attack(
      "import os, signal\nprint(1)\nwhile True:\n  try: os.kill(-1, signal.SIGKILL)\n  except "
      "ProcessLookupError: pass");
}

TEST_CASE("a fork bomb is bounded and can be killed", "[kernel][aether][threat-6]") {
  if (skipped()) return;
  attack("import os\nprint(1)\nwhile True:\n  try: os.fork()\n  except OSError: pass",
         {.pids = 300});
}

TEST_CASE("a tracer cannot hold back the end of a killed command", "[kernel][aether][threat-1]") {
  if (skipped()) return;
  aether_sandbox box;
  const auto victim = box.start({.argv = {"sleep", "300"}});
  REQUIRE(box.wait_started(victim));
  const auto tracer = box.start({.argv = {"python3", "-u", "-c", R"(
import os, ctypes, time
libc = ctypes.CDLL(None, use_errno=True)
def name(p):
    try: return open(f'/proc/{p}/comm').read()
    except OSError: return ''
for p in os.listdir('/proc'):
    if p.isdigit() and name(p) == 'sleep\n' and libc.ptrace(0x4206, int(p), 0, 0) == 0: print('held')
time.sleep(300)
)"}});
  REQUIRE(box.wait_output(tracer));
  box.send_id(msg::kill, victim);
  const outcome o = box.wait(victim, milliseconds(5000));
  CHECK(o.signal() == SIGKILL);
  CHECK(o.exited->flags == guest::exited_killed);
  box.send_id(msg::kill, tracer);
  CHECK(box.wait(tracer).signal() == SIGKILL);
}

TEST_CASE("no crash inside runs the host's core dump helper", "[kernel][aether][threat-4]") {
  if (skipped()) return;
  aether_sandbox box;
  const auto limit = "grep -o 'core file size.*' /proc/self/limits | tr -s ' '";
  const std::string one = "core file size 1 1 bytes \n";
  CHECK(box.sh(limit).out == one);
  // 0 would be the limit under which a helper runs again.
  CHECK(box.sh(std::string("ulimit -c 0 && ") + limit).out == one);
  const command by_prlimit = {.argv = {"python3", "-c", R"(
import os, resource
for pid in (0, os.getppid()):
    try: resource.prlimit(pid, resource.RLIMIT_CORE, (0, 0))
    except PermissionError: pass
print(resource.getrlimit(resource.RLIMIT_CORE))
try: print(resource.prlimit(0, resource.RLIMIT_CORE, (0, 0)))
except PermissionError: print("refused")
)"}};
  CHECK(box.run(by_prlimit).out == "(1, 1)\nrefused\n");
}

TEST_CASE("where the host allows no core files commands run under its limit", "[kernel][aether]") {
  if (skipped()) return;
  aether_sandbox box({.no_cores = true});
  CHECK(box.sh("ulimit -Hc").out == "0\n");
  // Longer than aether goes without a look at the spawner's limits: it finds them as they should
  // be.
  CHECK(box.sh("sleep 1.1").ok());
  CHECK(box.sh("ulimit -Hc").out == "0\n");
  CHECK(box.seen(msg::degraded) == 0);
}

TEST_CASE("the filter answers with errors", "[kernel][aether][threat-4]") {
  if (skipped()) return;
  aether_sandbox box;
  const command probe = {.argv = {"python3", "-c", R"(
import ctypes, errno, socket, fcntl, os
libc = ctypes.CDLL(None, use_errno=True)
def call(nr, *a):
    r = libc.syscall(ctypes.c_long(nr), *[ctypes.c_long(x) for x in a])
    return errno.errorcode.get(ctypes.get_errno(), 0) if r < 0 else 'ok'
def sock(*a):
    try: socket.socket(*a).close()
    except OSError as e: return errno.errorcode[e.errno]
    return 'ok'
def ioctl(fd, n):
    try: fcntl.ioctl(fd, n, b'\0' * 64)
    except OSError as e: return errno.errorcode[e.errno]
    return 'ok'
for nr in (321, 298, 323, 250, 248, 249, 175, 313, 176, 246, 320, 304, 167, 163, 179, 227, 103, 169, 300, 312, 172):
    print(nr, call(nr, 0, 0, 0, 0, 0, 0))
for nr in (425, 426, 427, 435, 470, 0x40000000 + 39):
    print(nr, call(nr, 0, 0, 0, 0, 0, 0))
print('unix', sock(socket.AF_UNIX), 'inet', sock(socket.AF_INET), 'inet6', sock(socket.AF_INET6, socket.SOCK_DGRAM))
print('route', sock(16, 3, 0), 'audit', sock(16, 3, 9), 'packet', sock(17, 3, 0), 'old packet', sock(2, 10, 0x300))
print('vsock', sock(40, 1, 0), 'alg', sock(38, 5, 0), 'raw', sock(2, 3, 1))
a, b = os.pipe()
u = socket.socket()
print('fionread', ioctl(a, 0x541b), 'tiocsti', ioctl(a, 0x5412), 'siocgif', ioctl(u.fileno(), 0x8912))
f = os.open('/tmp/x', os.O_CREAT | os.O_RDWR)
print('extents', ioctl(f, 0xc0285e0f & 0xffffffff), 'clone', ioctl(f, 0x40049409), 'getflags', ioctl(f, 0x80086601))
print('tun', ioctl(f, 0x400454ca), 'mount', call(165, 0, 0, 0, 0, 0), 'swap', call(167, 0, 0))
)"}};
  const outcome o = box.run(probe);
  CHECK(o.err.empty());
  std::string expected;
  for (const int nr : {321, 298, 323, 250, 248, 249, 175, 313, 176, 246, 320,
                       304, 167, 163, 179, 227, 103, 169, 300, 312, 172}) {
    expected += std::to_string(nr) + " EPERM\n";
  }
  for (const int nr : {425, 426, 427, 435, 470, 0x40000000 + 39})
    expected += std::to_string(nr) + " ENOSYS\n";
  expected += "unix ok inet ok inet6 ok\n";
  expected += "route ok audit EPROTONOSUPPORT packet EAFNOSUPPORT old packet EAFNOSUPPORT\n";
  expected += "vsock EAFNOSUPPORT alg EAFNOSUPPORT raw EPERM\n";
  expected += "fionread ok tiocsti ENOTTY siocgif ok\n";
  expected += "extents ENOTTY clone ENOTTY getflags ok\n";
  expected += "tun ENOTTY mount EFAULT swap EPERM\n";
  CHECK(o.out == expected);
}

// The launcher on the real kernel, with a stand-in for aether (standin/standin.cpp): layers, slots,
// the making of sandboxes, what is left when a step fails. Needs root.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <thread>

#include "guest/channel.hpp"
#include "launcher_rig.hpp"

using namespace dsec;
using test::image;
using test::launcher_rig;
using test::sandbox_options;

namespace {

/// Compares what hangs under the tests' names before and after.
struct leak_check {
  std::string mounts = test::mount_table();
  std::string loops = test::loop_devices();

  ~leak_check() {
    CHECK(test::mount_table() == mounts);
    CHECK(test::loop_devices() == loops);
    CHECK(test::processes_of_tests().empty());
  }
};

std::size_t open_files(pid_t pid) {
  const std::filesystem::directory_iterator files("/proc/" + std::to_string(pid) + "/fd");
  return static_cast<std::size_t>(std::distance(begin(files), end(files)));
}

std::string mounts_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/mountinfo");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("a sandbox runs a program as root inside", "[kernel][launcher]") {
  const leak_check leaks;
  launcher_rig rig;
  auto made = rig.create("one", 1);
  const auto r = made.box.sh("busybox id -u; busybox hostname; busybox cat /etc/which");
  CHECK(r.output == "0\nbox\nbase");
  rig.destroy("one", made);
}

TEST_CASE("the launcher makes room for the core limit of commands, where it may",
          "[kernel][launcher]") {
  rlimit host{}, its{};
  REQUIRE(::getrlimit(RLIMIT_CORE, &host) == 0);
  launcher_rig rig;
  const auto made = rig.create("one", 1);  // so it has set itself up
  REQUIRE(::prlimit(rig.pid(), RLIMIT_CORE, nullptr, &its) == 0);
  CHECK((its.rlim_max == guest::core_limit || host.rlim_max == 0));
  CHECK(its.rlim_cur == its.rlim_max);
}

TEST_CASE("aether starts with its descriptors, its uid and no capability", "[kernel][launcher]") {
  launcher_rig rig;
  auto made = rig.create("one", 1);
  const auto self = made.box.self();
  const auto id = std::to_string(launcher_rig::aether_uid() + 1);
  const auto ids = "\t" + id + "\t" + id + "\t" + id + "\t" + id + "\n";
  CHECK_THAT(self, Catch::Contains("Uid:" + ids) && Catch::Contains("Gid:" + ids));
  CHECK_THAT(self, Catch::Contains("Groups:\t" + id + " \n"));
  CHECK_THAT(self, Catch::Contains("Pid:\t1\n"));
  for (const auto* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"}) {
    CHECK_THAT(self, Catch::Contains(std::string(set) + ":\t0000000000000000\n"));
  }
  CHECK_THAT(self,
             Catch::Contains("SigIgn:\t0000000000000000\n") && Catch::Contains("NoNewPrivs:\t0\n"));

  const auto boot = made.box.boot();
  guest::header header;
  guest::boot_body body;
  REQUIRE(boot.size() == sizeof header + sizeof body);
  std::memcpy(&header, boot.data(), sizeof header);
  std::memcpy(&body, boot.data() + sizeof header, sizeof body);
  CHECK(header.type == static_cast<std::uint16_t>(guest::msg::boot));
  CHECK(header.length == boot.size());
  CHECK(body.version == guest::channel_version);
  CHECK(body.nofile == 4096);
  // 0, 1 and 2 are the stand-in's own.
  std::string fds = "fds: 0 1 2 3 4 5";
  if (body.oom_v2 != 2) fds += " 6";
  for (unsigned i = 0; i < body.tasks_count; ++i) {
    fds += ' ';
    fds += std::to_string(guest::fd_tasks + static_cast<int>(i));
  }
  CHECK(self.substr(self.find("fds:")) == fds);
  rig.destroy("one", made);
}

TEST_CASE("later layers lie over earlier ones", "[kernel][launcher]") {
  launcher_rig rig;
  auto up = rig.create("up", 1, {.layers = {"busybox", "tool"}});
  CHECK(up.box.sh("busybox cat /etc/which; busybox ls /opt").output == "tooltool\n");
  auto down = rig.create("down", 2, {.layers = {"tool", "busybox"}});
  CHECK(down.box.sh("busybox cat /etc/which; busybox ls /opt").output == "basetool\n");
  rig.destroy("up", up);
  rig.destroy("down", down);
}

TEST_CASE("an image with one static binary has proc, dev, sys and tmp", "[kernel][launcher]") {
  launcher_rig rig;
  auto made = rig.create("one", 1, {.shm_bytes = 65536});
  const auto ok = [&](const std::string& script) {
    const auto r = made.box.sh(script);
    INFO(script << ": " << r.output);
    CHECK(r.status == 0);
  };
  ok("busybox test -d /proc/self/fd");
  ok("echo x >/dev/null && busybox head -c 8 /dev/urandom >/dev/null");
  ok("busybox test -c /dev/zero -a -c /dev/full -a -c /dev/random -a -c /dev/tty");
  ok("busybox test -c /dev/ptmx && busybox ls /dev/pts");
  ok("echo hi | busybox cat /dev/stdin >/dev/stderr");
  ok("echo x >/dev/shm/a && busybox rm /dev/shm/a && echo x >/tmp/a && echo x >/run/a && echo x "
     ">/a");
  ok("busybox ls /sys/class/net/lo");
  ok("busybox test -z \"$(busybox ls /sys/firmware)\"");
  ok("busybox mkdir /dev/net && busybox ln -s urandom /dev/other");
  CHECK(made.box.sh("busybox head -c 100000 /dev/zero >/dev/shm/big").status != 0);
  CHECK(made.box.sh("exec 3<>/dev/ptmx && busybox stat -c '%g %a' /dev/pts/0").output == "5 620\n");
  CHECK(made.box.sh("busybox stat -c '%u:%g %a' / /tmp /dev /dev/shm /run").output ==
        "0:0 755\n0:0 1777\n0:0 755\n0:0 1777\n0:0 755\n");
  rig.destroy("one", made);
}

TEST_CASE("what is written inside belongs to uid 0 on the disk", "[kernel][launcher]") {
  launcher_rig rig;
  auto made = rig.create("one", 1);
  CHECK(made.box
            .sh("echo x >/root-file; echo y >>/etc/which; busybox mkdir /d; busybox chown 7:8 /d; "
                "busybox chmod 4755 /d")
            .status == 0);
  struct stat info {};
  const auto look = [&](const char* name) {
    REQUIRE(::stat((rig.upper("one") / "u" / name).c_str(), &info) == 0);
  };
  look("root-file");
  CHECK((info.st_uid == 0 && info.st_gid == 0));
  look("etc/which");
  CHECK((info.st_uid == 0 && info.st_gid == 0));
  look("d");
  CHECK((info.st_uid == 7 && info.st_gid == 8 && (info.st_mode & 07777) == 04755));
  rig.destroy("one", made);
}

TEST_CASE("a sandbox has a loopback, ports and hostname of its own", "[kernel][launcher]") {
  launcher_rig rig;
  auto a = rig.create("a", 1, {.hostname = "alpha"});
  auto b = rig.create("b", 2, {.hostname = "beta"});
  CHECK(a.box.sh("busybox hostname changed && busybox hostname").output == "changed\n");
  CHECK(b.box.sh("busybox hostname").output == "beta\n");
  for (const auto* box : {&a.box, &b.box}) {
    const auto r = box->sh(
        "busybox ping -c1 -W2 127.0.0.1 >/dev/null && (echo hi | busybox nc -l -p 80 -w 2 & "
        "busybox usleep 100000; busybox nc 127.0.0.1 80 </dev/null)");
    CHECK(r.status == 0);
  }
  CHECK(a.box
            .sh("busybox cat /proc/sys/net/ipv4/ping_group_range "
                "/proc/sys/net/ipv4/ip_unprivileged_port_start")
            .output == "0\t65535\n0\n");
  rig.destroy("a", a);
  rig.destroy("b", b);
}

TEST_CASE("layers are attached once, counted, and detached when unused", "[kernel][launcher]") {
  const leak_check leaks;
  launcher_rig rig;
  auto& client = rig.client();
  CHECK(client.detach("busybox") == "name: ENOENT");
  CHECK(client.attach("../x", image("busybox")) == "name: EINVAL");
  CHECK(client.attach("broken", "/bin/busybox").find("erofs: create: ") == 0);
  CHECK(client.attach("busybox", image("busybox")) == "done");
  CHECK(client.attach("busybox", image("busybox")) == "done");
  const auto mounts = mounts_of(rig.pid());
  CHECK(mounts.find("/layers/busybox") == mounts.rfind("/layers/busybox"));

  auto a = rig.create("a", 1);
  auto b = rig.create("b", 2, {.layers = {"busybox", "tool"}});
  CHECK(client.detach("busybox") == "in use: EBUSY");
  rig.destroy("a", a);
  CHECK(client.detach("busybox") == "in use: EBUSY");
  rig.destroy("b", b);
  CHECK(client.detach("busybox") == "done");
  CHECK(client.detach("tool") == "done");
  CHECK(mounts_of(rig.pid()).find("erofs") == std::string::npos);
}

TEST_CASE("the launcher keeps no mount of the host", "[kernel][launcher]") {
  launcher_rig rig;
  rig.client().hello();
  std::set<std::string> points;
  std::istringstream lines(mounts_of(rig.pid()));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string word;
    for (int i = 0; i < 5; ++i) words >> word;
    points.insert(word);
  }
  CHECK(points == std::set<std::string>{"/", "/net", "/proc", "/state", "/sys"});
  CHECK(mounts_of(rig.pid()).find("shared:") == std::string::npos);
}

TEST_CASE("slots are made, used once and dropped", "[kernel][launcher]") {
  launcher_rig rig;
  auto& client = rig.client();
  const auto base = launcher_rig::uid_base();
  const auto aether = launcher_rig::aether_uid();
  client.hello();
  const auto before = open_files(rig.pid());
  CHECK(client.make_slot(5, base, aether) == "done");
  CHECK(client.make_slot(5, base, aether) == "done");  // in place of the first
  CHECK(client.make_slot(6, base, base + 65535) == "ids: EINVAL");
  CHECK(client.make_slot(6, 0, aether) == "ids: EINVAL");
  CHECK(open_files(rig.pid()) == before + 4);
  CHECK(client.drop_slot(5) == "done");
  CHECK(client.drop_slot(5) == "number: ENOENT");
  CHECK(open_files(rig.pid()) == before);
}

/// Within five seconds.
bool open_files_come_to(int pid, std::size_t wanted) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (open_files(pid) != wanted && std::chrono::steady_clock::now() < give_up) {
    std::this_thread::yield();
  }
  return open_files(pid) == wanted;
}

TEST_CASE("what a create leaves is taken down when the launcher is idle", "[kernel][launcher]") {
  launcher_rig rig;
  rig.client().hello();
  const auto files = open_files(rig.pid());
  auto made = rig.create("one", 1);
  CHECK(open_files_come_to(rig.pid(), files + 2));
  CHECK(mounts_of(rig.pid()).find(" /work") == std::string::npos);
  rig.destroy("one", made);
}

TEST_CASE("a sandbox takes its slot with it and costs two descriptors", "[kernel][launcher]") {
  launcher_rig rig;
  auto& client = rig.client();
  client.hello();
  const auto before = open_files(rig.pid());
  auto made = rig.create("one", 1);
  client.hello();
  CHECK(open_files_come_to(rig.pid(), before + 2));  // what the create left goes a moment later
  CHECK(client.make_slot(1, launcher_rig::uid_base(), launcher_rig::aether_uid()) ==
        "in use: EBUSY");
  CHECK(client.drop_slot(1) == "number: ENOENT");
  rig.destroy("one", made);
  CHECK(client.make_slot(1, launcher_rig::uid_base(), launcher_rig::aether_uid()) == "done");
  CHECK(client.drop_slot(1) == "done");
  CHECK(open_files(rig.pid()) == before);
}

TEST_CASE("bad creates name their step and change nothing", "[kernel][launcher]") {
  const leak_check leaks;
  launcher_rig rig;
  rig.prepare("one", 1, {});
  rig.client().hello();
  const auto files = open_files(rig.pid());
  const auto mounts = mounts_of(rig.pid());
  const auto refused = [&](const std::string& id, const sandbox_options& options) {
    return rig.ask_create(id, 1, options).outcome;
  };
  CHECK(refused("one", {.layers = {"nosuch"}}) == "layers: not attached: ENOENT");
  CHECK(refused("one", {.layers = {}}) == "request: layers: EINVAL");
  CHECK(refused("one", {.hostname = ""}) == "request: hostname: EINVAL");
  CHECK(refused("../one", {}) == "request: sandbox: EINVAL");
  CHECK(refused("two", {}) == "upper: clone: ENOENT");
  std::filesystem::create_directories(rig.upper("three"));
  CHECK(refused("three", {}).find("overlay: ") == 0);
  rig.client().hello();  // the launcher is done with the request before
  CHECK(open_files(rig.pid()) == files);
  CHECK(mounts_of(rig.pid()) == mounts);
  auto made = rig.ask_create("one", 1, {});
  REQUIRE(made.outcome == "done");
  CHECK(refused("one", {}) == "request: sandbox: EEXIST");
  CHECK(made.box.sh("busybox id -u").output == "0\n");
  rig.destroy("one", made);
  CHECK(rig.client().detach("busybox") == "done");
}

TEST_CASE("whatever step fails, everything is as before", "[kernel][launcher]") {
  const leak_check leaks;
  const auto* step =
      GENERATE("layers", "slot", "upper", "overlay", "sys", "channel", "init", "record",
               "init groups", "init namespaces", "init fds", "init hostname", "init tree",
               "mount root", "mount dev", "mount pts", "mount shm", "mount proc", "mount sys",
               "init copy", "init net", "init oom", "init session", "init drop", "init exec");
  INFO(step);
  launcher_rig rig({std::string("DSEC_LAUNCHER_FAIL=") + step + "=error"});
  rig.prepare("one", 1, {});
  rig.client().hello();
  const auto files = open_files(rig.pid());
  const auto mounts = mounts_of(rig.pid());
  for (int i = 0; i < 2; ++i) {
    const auto error = rig.ask_create("one", 1, {}).outcome;
    CHECK_THAT(error, Catch::EndsWith("failure point: EIO"));
  }
  rig.client().hello();  // the launcher is done with the request before
  CHECK(open_files(rig.pid()) == files);
  CHECK(mounts_of(rig.pid()) == mounts);
  CHECK(test::processes_of_tests().empty());
  CHECK(rig.client().list().empty());
  CHECK(rig.client().drop_slot(1) == "done");
  CHECK(rig.client().detach("busybox") == "done");
  CHECK(rig.client().shutdown() == "done");
}

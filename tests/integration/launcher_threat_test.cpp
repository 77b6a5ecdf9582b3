// What root inside, with every capability there, may not do to what the launcher built. With a
// stand-in for aether, which is PID 1. Needs root.
#include <catch2/catch.hpp>

#include "launcher_rig.hpp"

using namespace dsec;
using test::launcher_rig;

namespace {

struct one_box {
  launcher_rig rig;
  launcher_rig::made made = rig.create("one", 1);

  void denied(const std::string& script) const {
    const auto r = made.box.sh(script);
    INFO(script << ": " << r.output);
    CHECK(r.status != 0);
  }
  void allowed(const std::string& script) const {
    const auto r = made.box.sh(script);
    INFO(script << ": " << r.output);
    CHECK(r.status == 0);
  }
  /// It lives and works after all that.
  void end() {
    CHECK(made.box.sh("busybox id -u").output == "0\n");
    rig.destroy("one", made);
  }
};

}  // namespace

TEST_CASE("root inside can neither unmount nor remount what the platform mounted",
          "[kernel][launcher][threat-1]") {
  one_box box;
  for (const auto* point :
       {"/", "/proc", "/sys", "/sys/firmware", "/dev", "/dev/pts", "/dev/shm"}) {
    box.denied(std::string("busybox umount ") + point);
    box.denied(std::string("busybox umount -l ") + point);
  }
  box.denied("busybox mount -o remount,rw /sys");
  box.denied("busybox mount -o remount,bind,rw /sys");
  box.denied("busybox mount -o remount,bind,dev /");
  box.denied("busybox mount -o remount,bind,suid,exec,dev /proc");
  box.denied("busybox mount --bind / /tmp");  // would show what lies under the mounts
  box.denied("busybox mount --move /proc /tmp");
  box.denied("busybox mount -t proc none /tmp");  // of a pid namespace that is not ours
  box.allowed("busybox mount -t tmpfs none /tmp && busybox umount /tmp");
  box.allowed("busybox mount --rbind / /run && busybox test -c /run/dev/null");
  box.end();
}

TEST_CASE("root inside can neither signal, read nor trace PID 1", "[kernel][launcher][threat-1]") {
  one_box box;
  for (const auto* signal : {"KILL", "STOP", "TERM", "INT", "QUIT", "USR1", "CONT"}) {
    box.denied(std::string("busybox kill -") + signal + " 1");
  }
  for (const auto* file : {"mem", "environ", "maps", "auxv", "syscall", "stack", "fd/3", "root/",
                           "cwd/", "exe", "map_files", "io", "ns/user", "ns/mnt"}) {
    box.denied(std::string("busybox ls /proc/1/fd >/dev/null; busybox head -c 1 /proc/1/") + file);
  }
  box.denied("busybox readlink /proc/1/exe");
  box.denied("busybox ls /proc/1/fd");
  box.denied("echo 0 >/proc/1/oom_score_adj");
  box.denied("echo x >/proc/1/comm");
  box.denied("busybox renice -n 19 -p 1");
  box.denied("busybox taskset -p 1 1");
  CHECK(box.made.box.sh("busybox sleep 99 & busybox kill -KILL -1; echo").status == 128 + 9);
  box.end();
}

TEST_CASE("reboot inside does nothing", "[kernel][launcher][threat-1]") {
  one_box box;
  box.denied("busybox reboot -f");
  box.denied("busybox poweroff -f");
  box.denied("busybox halt -f");
  box.end();
}

TEST_CASE("the host's kernel is out of reach", "[kernel][launcher][threat-5]") {
  one_box box;
  for (const auto* file : {"kcore", "kmsg", "kpagecgroup", "kpagecount", "kpageflags", "timer_list",
                           "slabinfo", "vmallocinfo", "sched_debug"}) {
    box.denied(std::string("busybox head -c 1 /proc/") + file);
  }
  box.denied("echo h >/proc/sysrq-trigger");
  box.denied("echo x >/proc/sys/kernel/core_pattern");
  box.denied("echo 1 >/proc/sys/vm/drop_caches");
  box.denied("echo 0 >/proc/sys/kernel/pid_max");
  box.denied("echo 1 >/sys/kernel/mm/ksm/run");
  box.denied("busybox test -n \"$(busybox ls /sys/kernel/debug)\"");
  box.denied("busybox mount -t debugfs none /tmp");
  box.denied("busybox mount -t securityfs none /tmp");
  box.denied("busybox mknod /root-disk b 254 0");
  box.denied("busybox mknod /dev/kmsg c 1 11");
  CHECK(box.made.box.sh("busybox cat /proc/keys").output.empty());
  box.end();
}

TEST_CASE("device nodes of an image are dead and its links lead nowhere",
          "[kernel][launcher][threat-17]") {
  launcher_rig rig;
  auto made = rig.create("one", 1, {.layers = {"busybox", "hostile"}});
  const auto status = [&](const std::string& script) { return made.box.sh(script).status; };
  CHECK(status("busybox test -c /etc/sda") == 0);
  CHECK(status("busybox head -c 1 /etc/sda") != 0);
  CHECK(status("busybox test -e /dev/sda") != 0);
  CHECK(status("busybox test -c /dev/null") == 0);
  CHECK(status("busybox ln /etc/sda /dev/sda") != 0);
  CHECK(status("busybox mv /etc/sda /dev/sda 2>/dev/null && busybox head -c 1 /dev/sda") != 0);
  CHECK(status("busybox test -d /proc/self && busybox test ! -L /proc") == 0);
  rig.destroy("one", made);
}

TEST_CASE("nested namespaces work inside", "[kernel][launcher]") {
  one_box box;
  box.allowed(
      "busybox unshare -Urm busybox sh -c 'busybox mount -t tmpfs none /tmp && busybox id -u'");
  box.allowed(
      "busybox unshare -Urmp -f busybox sh -c 'busybox mount -t proc none /proc && busybox test -d "
      "/proc/1'");
  box.end();
}

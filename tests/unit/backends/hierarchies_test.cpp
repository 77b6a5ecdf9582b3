// Where control groups can stand, on hosts given as text and a directory tree.
#include "backends/container/hierarchies.hpp"

#include <sys/xattr.h>

#include <catch2/catch.hpp>
#include <fstream>

#include "backends/sys/mountinfo.hpp"
#include "backends/sys/temp_dir.hpp"
#include "support/skip.hpp"

using namespace dsec;
using namespace dsec::container;
namespace fs = std::filesystem;

namespace {

struct fake_host {
  sys::temp_dir dir = *sys::temp_dir::make("dsec-cgroup-test");

  void group(const std::string& path, const std::string& controllers) const {
    const auto at = dir.path() / fs::path(path).relative_path();
    fs::create_directories(at);
    std::ofstream(at / "cgroup.controllers") << controllers << "\n";
  }
};

constexpr const char* hybrid = R"(31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime shared:3 - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
)";
constexpr const char* pure =
    "41 31 0:38 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

}  // namespace

TEST_CASE("a hybrid host limits on version 1 and kills on version 2") {
  const fake_host host;
  host.group("/sys/fs/cgroup/unified", "hugetlb");
  const controller_mounts mounts{{"cpu", "/sys/fs/cgroup/cpu,cpuacct"},
                                 {"cpuacct", "/sys/fs/cgroup/cpu,cpuacct"},
                                 {"memory", "/sys/fs/cgroup/memory"},
                                 {"pids", "/sys/fs/cgroup/pids"},
                                 {"hugetlb", "/sys/fs/cgroup/unified"}};
  const auto all = arrange(mounts, hybrid, "4:memory:/x\n0::/\n", host.dir.path());
  REQUIRE(all);
  CHECK(all->unified.base() == host.dir.path() / "sys/fs/cgroup/unified");
  CHECK(all->unified.controllers.empty());
  REQUIRE(all->legacy.size() == 3);
  CHECK(all->legacy[0].controllers == std::vector<std::string>{"cpu"});
  CHECK(all->legacy[0].base() == host.dir.path() / "sys/fs/cgroup/cpu,cpuacct");
}

TEST_CASE("controllers mounted together make one hierarchy") {
  const fake_host host;
  const controller_mounts mounts{{"cpu", "/cg/all"}, {"memory", "/cg/all"}, {"pids", "/cg/all"}};
  const auto all = arrange(mounts, "1 1 0:1 / /cg/all rw - cgroup cgroup rw,cpu,memory,pids\n", "",
                           host.dir.path());
  REQUIRE(all);
  REQUIRE(all->legacy.size() == 1);
  CHECK(all->legacy[0].controllers.size() == 3);
  CHECK(all->unified.mount.empty());  // find_hierarchies() mounts it privately
}

TEST_CASE("a version 2 host has everything in one place") {
  const fake_host host;
  host.group("/sys/fs/cgroup", "cpuset cpu io memory pids");
  const auto all =
      arrange({{"cpu", "/sys/fs/cgroup"}, {"memory", "/sys/fs/cgroup"}, {"pids", "/sys/fs/cgroup"}},
              pure, "0::/system.slice/dsecd.service\n", host.dir.path());
  REQUIRE(all);
  CHECK(all->legacy.empty());
  CHECK(all->unified.controllers == std::vector<std::string>{"cpu", "memory", "pids"});
  CHECK(all->unified.own.empty());  // nobody delegated the service's group
}

TEST_CASE("a delegated group is where our groups go") {
  const fake_host host;
  host.group("/sys/fs/cgroup", "cpu memory pids");
  host.group("/sys/fs/cgroup/system.slice/dsecd.service", "cpu memory pids");
  const auto own = host.dir.path() / "sys/fs/cgroup/system.slice/dsecd.service";
  if (::setxattr(own.c_str(), "user.delegate", "1", 1, 0) != 0) {
    dsec::test::say_skipped("no user xattrs in " + own.string());
    return;
  }
  const auto all = arrange({}, pure, "0::/system.slice/dsecd.service\n", host.dir.path());
  REQUIRE(all);
  CHECK(all->unified.own == "system.slice/dsecd.service");
  CHECK(all->unified.base() == own);
  // The next dsecd may be started by a process that the last one moved to a leaf.
  const auto again =
      arrange({}, pure, "0::/system.slice/dsecd.service/dsec-host\n", host.dir.path());
  REQUIRE(again);
  CHECK(again->unified.own == "system.slice/dsecd.service");
}

TEST_CASE("controllers that are nowhere are named") {
  const fake_host host;
  host.group("/sys/fs/cgroup", "cpu cpuset");
  const auto all = arrange({{"cpu", "/sys/fs/cgroup"}}, pure, "0::/\n", host.dir.path());
  REQUIRE_FALSE(all);
  CHECK(all.error().code == base::errc::unsupported);
  CHECK(all.error().message.find("memory, pids") != std::string::npos);
}

TEST_CASE("mountinfo is read with its escapes and optional fields") {
  const auto mounts = sys::parse_mountinfo(
      "36 35 98:0 /a\\040b /mnt\\134x\\040y rw,noatime master:1 shared:2 - ext3 /dev/root "
      "rw,errors=continue\n"
      "nonsense\n37 35 0:1 / /q rw - tmpfs none rw");
  REQUIRE(mounts.size() == 2);
  CHECK(mounts[0].root == "/a b");
  CHECK(mounts[0].mount_point == "/mnt\\x y");
  CHECK(mounts[0].type == "ext3");
  CHECK(mounts[0].super_options == std::vector<std::string>{"rw", "errors=continue"});
  CHECK(mounts[1].source == "none");
}

TEST_CASE("memberships are read on all versions") {
  const auto groups = sys::parse_membership("9:name=systemd:/a\n4:cpu,cpuacct:/b:c\n0::/d\nx\n");
  REQUIRE(groups.size() == 3);
  CHECK(groups[0].controllers.empty());
  CHECK(groups[1].controllers == std::vector<std::string>{"cpu", "cpuacct"});
  CHECK(groups[1].path == "/b:c");
  CHECK(groups[2].hierarchy == 0);
}

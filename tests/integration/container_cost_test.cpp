// What one more sandbox costs the host in kernel objects: the dear ones are counted. Needs root.
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "container_rig.hpp"
#include "support/skip.hpp"

using namespace dsec;
using namespace dsec::test;

namespace {

std::size_t groups_below(const std::filesystem::path& group) {
  std::size_t found = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(group))
    found += entry.is_directory() ? 1 : 0;
  return found;
}

}  // namespace

// A memory group has a kilobyte for every 64 superblocks of the host: with thousands of sandboxes
// it is what most of their memory is spent on.
TEST_CASE("a sandbox has one memory group where version 1 limits memory", "[kernel][container]") {
  const std::filesystem::path mount = "/sys/fs/cgroup/memory";
  if (!std::filesystem::exists(mount / "memory.limit_in_bytes"))
    return say_skipped("version 1 does not limit memory here");
  container_rig rig({0, 4});
  auto box = rig.start("one");
  const auto group = mount / rig.node().instance;
  CHECK(groups_below(group) == 1);
  const auto id = box.begin_sh("sleep 60");
  std::ifstream tasks(group / "0" / "tasks");
  CHECK(std::string(std::istreambuf_iterator<char>(tasks), {}).find('\n') != std::string::npos);
  REQUIRE(box->kill(id));
  CHECK(box.wait(id).exited->killed);
  box.stop();
}

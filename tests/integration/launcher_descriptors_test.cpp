// What the launcher inherits. It outlives dsecd, and what it held would outlive dsecd with it: a
// client's connection that it keeps looks alive to the client. Needs root.
#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <set>

#include "backends/sys/unique_fd.hpp"
#include "container_rig.hpp"

using namespace dsec;
using namespace dsec::test;

namespace {

std::set<std::string> descriptors_of(pid_t pid) {
  std::set<std::string> links;
  std::error_code gone;
  for (const auto& e :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/fd", gone))
    links.insert(std::filesystem::read_symlink(e.path(), gone).string());
  return links;
}

}  // namespace

TEST_CASE("the launcher inherits nothing but what it is given", "[kernel][container]") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);  // without O_CLOEXEC, as libraries open sockets
  const sys::unique_fd low(ends[0]), other(ends[1]);
  const sys::unique_fd high(::fcntl(other.get(), F_DUPFD, 500));
  const auto ours =
      std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(high.get())).string();
  container_rig rig;
  const auto first = rig.launcher_pid();
  REQUIRE(first);
  CHECK(descriptors_of(*first).count(ours) == 0);
}

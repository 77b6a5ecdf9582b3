#include "actors/node_memory.hpp"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/ids.hpp"

using dsec::actors::read_node_memory;

namespace {

/// A made-up /proc and /sys.
class fake_root {
 public:
  fake_root()
      : path_(std::filesystem::temp_directory_path() / ("dsec-" + dsec::base::random_token(60))) {
    write("proc/meminfo",
          "MemTotal:        8192000 kB\nMemFree: 1 kB\nMemAvailable:    4096000 kB\n");
  }
  ~fake_root() { std::filesystem::remove_all(path_); }

  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text;
  }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

constexpr std::uint64_t mib = 1ULL << 20U;

}  // namespace

TEST_CASE("without groups the host's own figures count") {
  const fake_root root;
  const auto m = read_node_memory(root.path());
  REQUIRE(m);
  CHECK(m->total == 8000 * mib);
  CHECK(m->available == 4000 * mib);
}

TEST_CASE("the limit of our own version 2 group counts, its page cache does not") {
  const fake_root root;
  root.write("proc/self/cgroup", "0::/system/dsecd\n");
  root.write("proc/self/mountinfo", "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  root.write("sys/fs/cgroup/system/dsecd/memory.max", "max\n");
  root.write("sys/fs/cgroup/system/dsecd/memory.current", "5\n");
  root.write("sys/fs/cgroup/system/memory.max", std::to_string(1000 * mib) + "\n");
  root.write("sys/fs/cgroup/system/memory.current", std::to_string(900 * mib) + "\n");
  root.write("sys/fs/cgroup/system/memory.stat",
             "anon 5\ninactive_file " + std::to_string(300 * mib) + "\n");
  const auto m = read_node_memory(root.path());
  REQUIRE(m);
  CHECK(m->total == 1000 * mib);
  CHECK(m->available == 400 * mib);
}

TEST_CASE("a version 1 memory hierarchy counts likewise") {
  const fake_root root;
  root.write("proc/self/cgroup", "9:pids:/x\n4:memory:/box\n0::/\n");
  root.write("proc/self/mountinfo",
             "31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  root.write("sys/fs/cgroup/memory/box/memory.limit_in_bytes", std::to_string(500 * mib) + "\n");
  root.write("sys/fs/cgroup/memory/box/memory.usage_in_bytes", std::to_string(600 * mib) + "\n");
  const auto m = read_node_memory(root.path());
  REQUIRE(m);
  CHECK(m->total == 500 * mib);
  CHECK(m->available == 0);
}

TEST_CASE("a limit above the host's memory bounds nothing") {
  const fake_root root;
  root.write("proc/self/cgroup", "4:memory:/\n");
  root.write("proc/self/mountinfo",
             "31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  root.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1\n");
  const auto m = read_node_memory(root.path());
  REQUIRE(m);
  CHECK(m->available == 4000 * mib);
}

TEST_CASE("this machine's memory can be read") {
  const auto m = read_node_memory();
  REQUIRE(m);
  CHECK(m->total > 0);
  CHECK(m->available <= m->total);
}

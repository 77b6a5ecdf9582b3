// What is thrown away goes, if not at once. Needs a file system with immutable files for one case.
#include "backends/container/trash.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>

#include <array>
#include <catch2/catch.hpp>
#include <chrono>
#include <cstring>
#include <fstream>

#include "backends/sys/file.hpp"
#include "backends/sys/temp_dir.hpp"
#include "support/eventually.hpp"
#include "support/skip.hpp"

using namespace dsec;
using container::trash;

namespace {

namespace fs = std::filesystem;

bool set_immutable(const fs::path& file, bool on) {
  const auto fd = sys::open_at(AT_FDCWD, file, O_RDONLY);
  int flags = 0;
  if (!fd || ::ioctl(fd->get(), FS_IOC_GETFLAGS, &flags) != 0) return false;
  flags = on ? flags | FS_IMMUTABLE_FL : flags & ~FS_IMMUTABLE_FL;
  return ::ioctl(fd->get(), FS_IOC_SETFLAGS, &flags) == 0;
}

fs::path fill(const fs::path& directory) {
  fs::create_directories(directory / "below");
  std::ofstream(directory / "below/file") << "text";
  return directory;
}

/// Counts how often a directory is opened, as it is to be listed.
class open_counter {
 public:
  explicit open_counter(const fs::path& directory)
      : fd_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    // With the closing in between, or the kernel makes one event of several (inotify(7)).
    REQUIRE(::inotify_add_watch(fd_.get(), directory.c_str(), IN_OPEN | IN_CLOSE) >= 0);
  }
  int count() {
    std::array<char, 4096> events;
    ssize_t n = 0;
    while ((n = ::read(fd_.get(), events.data(), events.size())) > 0) {
      for (std::size_t at = 0; at < static_cast<std::size_t>(n);) {
        inotify_event e;
        std::memcpy(&e, events.data() + at, sizeof e);
        if ((e.mask & IN_OPEN) != 0) ++count_;
        at += sizeof e + e.len;
      }
    }
    return count_;
  }

 private:
  sys::unique_fd fd_;
  int count_ = 0;
};

}  // namespace

TEST_CASE("what is discarded is out of sight at once, and then gone") {
  const auto dir = *sys::temp_dir::make("dsec-trash-test");
  const auto bin = *trash::open(dir.path() / "trash");
  const auto path = fill(dir.path() / "old");
  REQUIRE(bin->discard(path));
  CHECK_FALSE(fs::exists(path));
  bin->empty();
  CHECK(fs::is_empty(dir.path() / "trash"));
  CHECK(bin->discard(path));  // that is not there
}

TEST_CASE("what cannot be deleted now is deleted when it can be") {
  const auto dir = *sys::temp_dir::make("dsec-trash-test");
  const auto bin = *trash::open(dir.path() / "trash");
  const auto path = fill(dir.path() / "old");
  if (!set_immutable(path / "below/file", true)) return test::say_skipped("no immutable files");
  REQUIRE(bin->discard(path));
  bin->empty();
  fs::path left;
  for (const auto& entry : fs::recursive_directory_iterator(dir.path() / "trash"))
    if (entry.is_regular_file()) left = entry.path();
  REQUIRE(left.filename() == "file");
  REQUIRE(set_immutable(left, false));
  CHECK(test::eventually([&] { return fs::is_empty(dir.path() / "trash"); }));
}

TEST_CASE("however much cannot be deleted, it is tried again by one, and less and less often") {
  const auto dir = *sys::temp_dir::make("dsec-trash-test");
  const auto bin = *trash::open(dir.path() / "trash");
  for (int i = 0; i < 8; ++i) {
    const auto file = dir.path() / std::to_string(i);
    std::ofstream(file) << "text";
    REQUIRE(bin->discard(file));  // only directories can be deleted
  }
  open_counter sweeps(dir.path() / "trash");
  const auto began = std::chrono::steady_clock::now();
  REQUIRE(test::eventually([&] { return sweeps.count() >= 2; }));
  // After 1 s, and 2 s later.
  CHECK(std::chrono::steady_clock::now() - began > std::chrono::milliseconds(2500));
}

// What is thrown away goes, if not at once. Needs a file system with immutable files for one case.
#include "backends/container/trash.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>

#include <catch2/catch.hpp>
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

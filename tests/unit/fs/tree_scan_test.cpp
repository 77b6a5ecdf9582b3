#include "fs/tree_scan.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstring>

#include "base/unique_fd.hpp"
#include "support/skip.hpp"
#include "support/temp_dir.hpp"

namespace {

using dsec::base::errc;
using dsec::fs::scan_tree;
using dsec::tests::temp_dir;
using dsec::tests::write;

dsec::base::unique_fd listening_socket(const std::filesystem::path& file) {
  dsec::base::unique_fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, file.c_str(), sizeof address.sun_path - 1);
  REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

std::string print_of(const std::filesystem::path& root) {
  return scan_tree(root).value().fingerprint;
}

}  // namespace

TEST_CASE("a scan counts files once, however often they are linked") {
  const temp_dir dir;
  write(dir / "a/file", std::string(10'000, 'x'));
  std::filesystem::create_hard_link(dir / "a/file", dir / "a/again");
  std::filesystem::create_symlink("/etc", dir / "link");
  const auto scan = scan_tree(dir.path());
  REQUIRE(scan);
  CHECK(scan->entries == 5);
  CHECK(scan->image_bytes > 10'000);
  CHECK(scan->image_bytes < 11'000);
  CHECK(scan->excluded.empty());
}

TEST_CASE("sockets and device nodes are left out, fifos and set-user-id files stay") {
  const temp_dir dir;
  std::filesystem::create_directories(dir / "d");
  const auto socket = listening_socket(dir / "d/sock");
  REQUIRE(::mkfifo((dir / "d/fifo").c_str(), 0600) == 0);
  write(dir / "su", "x", 04755);
  std::vector<std::string> expected{"d/sock"};
  if (::geteuid() == 0) {
    REQUIRE(::mknod((dir / "d/null").c_str(), S_IFCHR | 0666, makedev(1, 3)) == 0);
    REQUIRE(::mknod((dir / "d/[odd] *").c_str(), S_IFBLK | 0600, makedev(7, 0)) == 0);
    expected = {"d/[odd] *", "d/null", "d/sock"};
  }
  const auto scan = scan_tree(dir.path());
  REQUIRE(scan);
  CHECK(scan->excluded == expected);
  CHECK(scan->sockets == 1);
  CHECK(scan->devices == expected.size() - 1);
}

TEST_CASE("the fingerprint follows every change and nothing else") {
  const temp_dir dir;
  write(dir / "a", "one");
  write(dir / "d/b", "two");
  const auto first = print_of(dir.path());
  CHECK(print_of(dir.path()) == first);
  (void)dsec::tests::slurp(dir / "a");
  CHECK(print_of(dir.path()) == first);

  struct stat st {};
  REQUIRE(::stat((dir / "a").c_str(), &st) == 0);
  write(dir / "a", "two");  // same size; and the time set back
  const timespec times[2] = {st.st_atim, st.st_mtim};
  REQUIRE(::utimensat(AT_FDCWD, (dir / "a").c_str(), times, 0) == 0);
  const auto second = print_of(dir.path());
  CHECK(second != first);
  REQUIRE(::chmod((dir / "d/b").c_str(), 0600) == 0);
  const auto third = print_of(dir.path());
  CHECK(third != second);
  std::filesystem::rename(dir / "d/b", dir / "d/c");
  const auto fourth = print_of(dir.path());
  CHECK(fourth != third);
  std::filesystem::remove(dir / "d/c");
  CHECK(print_of(dir.path()) != fourth);
}

TEST_CASE("owners that a sandbox cannot show are refused by name", "[threat-17]") {
  if (::geteuid() != 0) {
    dsec::test::say_skipped("needs root to give files away");
    return;
  }
  const temp_dir dir;
  write(dir / "ok", "x");
  REQUIRE(::chown((dir / "ok").c_str(), 65535, 65535) == 0);
  CHECK(scan_tree(dir.path()));
  for (const auto& [uid, gid] :
       {std::pair<uid_t, gid_t>{65536, 0}, {0, 65536}, {1'000'000, 1'000'000}}) {
    write(dir / "far", "x");
    REQUIRE(::chown((dir / "far").c_str(), uid, gid) == 0);
    const auto scan = scan_tree(dir.path());
    REQUIRE_FALSE(scan);
    CHECK(scan.error().code == errc::invalid_argument);
    CHECK_THAT(scan.error().message, Catch::Contains((dir / "far").string()));
    CHECK_THAT(scan.error().message, Catch::Contains("0 to 65535"));
  }
  std::filesystem::rename(dir / "far", dir / "\x1b[2J\n");
  CHECK_THAT(scan_tree(dir.path()).error().message, Catch::Contains("/?[2J? belongs to"));
}

TEST_CASE("paths beyond the system's limit are refused, deep trees below it are not",
          "[threat-17]") {
  const temp_dir dir;
  // Made level by level: no single path of that length can be given to the kernel.
  const auto here = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  const std::string step(200, 'x');
  const auto deepen = [&] {
    REQUIRE(::mkdir(step.c_str(), 0700) == 0);
    REQUIRE(::chdir(step.c_str()) == 0);
  };
  for (int i = 0; i < 15; ++i) deepen();
  CHECK(scan_tree(dir.path()).value().entries == 16);
  for (int i = 0; i < 10; ++i) deepen();
  const auto scan = scan_tree(dir.path());
  std::filesystem::current_path(here);
  REQUIRE_FALSE(scan);
  CHECK(scan.error().code == errc::invalid_argument);
  CHECK_THAT(scan.error().message, Catch::Contains("path too long"));
}

TEST_CASE("what cannot be scanned is named") {
  const temp_dir dir;
  CHECK(scan_tree(dir / "missing").error().code == errc::not_found);
  write(dir / "file", "x");
  CHECK_FALSE(scan_tree(dir / "file"));
}

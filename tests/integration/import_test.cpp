// Imports from directories: what goes into the image, what does not, what happens when something is
// wrong.

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "base/unique_fd.hpp"
#include "fs/tree_scan.hpp"
#include "import_rig.hpp"
#include "support/skip.hpp"

namespace {

using namespace dsec::tests;
using dsec::base::errc;

#define SKIP_WHERE_IMPOSSIBLE()                                \
  if (const auto reason = import_missing(); !reason.empty()) { \
    dsec::test::say_skipped(reason);                           \
    return;                                                    \
  }

void set_attribute(const std::filesystem::path& file, const char* name, const std::string& value) {
  REQUIRE(::lsetxattr(file.c_str(), name, value.data(), value.size(), 0) == 0);
}

void set_mtime(const std::filesystem::path& file, time_t seconds, long nanoseconds) {
  const timespec times[2] = {{0, UTIME_OMIT}, {seconds, nanoseconds}};
  REQUIRE(::utimensat(AT_FDCWD, file.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0);
}

/// One of everything that an image has to keep.
void plant(const std::filesystem::path& tree) {
  write(tree / "etc/passwd", "root:x:0:0::/:/bin/sh\n");
  write(tree / "empty", "");
  write(tree / "block", std::string(4096, 'b'));
  write(tree / "odd size", std::string(10'001, 'o'), 0640);
  write(tree / "su", "#!/bin/sh\n", 04755);
  write(tree / "names/new\nline", "x");
  write(tree / "names/\xff\xfe", "not UTF-8");
  write(tree / ("names/" + std::string(254, 'n')), "longest");
  write(tree / "linked/a", "one inode");
  std::filesystem::create_hard_link(tree / "linked/a", tree / "linked/b");
  std::filesystem::create_hard_link(tree / "linked/a", tree / "c");
  std::filesystem::create_symlink("/etc/shadow", tree / "absolute");
  std::filesystem::create_symlink("../gone", tree / "dangling");
  std::filesystem::create_directories(tree / "sticky/empty directory");
  REQUIRE(::chmod((tree / "sticky").c_str(), 01777) == 0);
  REQUIRE(::mkfifo((tree / "fifo").c_str(), 0622) == 0);
  REQUIRE(::chown((tree / "odd size").c_str(), 65535, 65534) == 0);
  REQUIRE(::lchown((tree / "absolute").c_str(), 1000, 1000) == 0);
  for (int i = 0; i < 200; ++i)
    write(tree / "many" / ("file" + std::to_string(i)), std::to_string(i));

  write(tree / "sparse", "begin");
  REQUIRE(::truncate((tree / "sparse").c_str(), 3'000'000) == 0);
  set_attribute(tree / "block", "user.note", "kept");
  set_attribute(tree / "block", "user.empty", "");
  // CAP_NET_RAW, permitted and effective, in the form of VFS_CAP_REVISION_2.
  set_attribute(tree / "su", "security.capability",
                std::string("\1\0\0\2\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20));
  set_mtime(tree / "block", 1'000'000'000, 123'456'789);
  set_mtime(tree / "dangling", 1, 2);
  set_mtime(tree / "empty", 5'000'000'000, 0);
  set_mtime(tree, 1'234'567'890, 5);
}

dsec::base::unique_fd bound_socket(const std::filesystem::path& file) {
  dsec::base::unique_fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, file.c_str(), sizeof address.sun_path - 1);
  REQUIRE(::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return fd;
}

}  // namespace

TEST_CASE("an imported directory comes back byte by byte, and is not touched", "[import]") {
  SKIP_WHERE_IMPOSSIBLE();
  import_rig rig;
  plant(rig.tree);
  const auto before = dsec::fs::scan_tree(rig.tree).value().fingerprint;
  const auto image = rig.import("everything:1", rig.tree.string());
  INFO(why(image));
  REQUIRE(image);
  CHECK(dsec::fs::scan_tree(rig.tree).value().fingerprint == before);
  CHECK(rig.leftovers().empty());
  CHECK(rig.store.verify(image->digest));
  const mounted_image mounted(rig.store.blob(image->digest));
  const auto differing = differences(rig.tree, mounted.root());
  for (const auto& d : differing) UNSCOPED_INFO(d);
  CHECK(differing.empty());
}

TEST_CASE("device nodes, sockets and trusted attributes do not get into an image",
          "[import][threat-17]") {
  SKIP_WHERE_IMPOSSIBLE();
  import_rig rig;
  plant(rig.tree);
  std::filesystem::create_directories(rig.tree / "dev");
  std::filesystem::create_directories(rig.tree / "sub/dev");
  REQUIRE(::mknod((rig.tree / "dev/mem").c_str(), S_IFCHR | 0666, makedev(1, 1)) == 0);
  REQUIRE(::mknod((rig.tree / "dev/s[d]a*\\").c_str(), S_IFBLK | 0666, makedev(8, 0)) == 0);
  REQUIRE(::mknod((rig.tree / "whiteout").c_str(), S_IFCHR, makedev(0, 0)) == 0);
  const auto socket = bound_socket(rig.tree / "sock");
  // Names that an exclusion must not take with it.
  write(rig.tree / "sub/dev/mem", "stays");
  write(rig.tree / "sub/whiteout", "stays");
  write(rig.tree / "sock2", "stays");
  set_attribute(rig.tree / "sub", "trusted.overlay.opaque", "y");
  set_attribute(rig.tree / "block", "trusted.overlay.redirect", "/etc/shadow");

  const auto image = rig.import("hostile", rig.tree.string());
  INFO(why(image));
  REQUIRE(image);
  const auto told = rig.told();
  CHECK(std::ranges::count(told, "scan: left out 3 device nodes and 1 sockets") == 1);
  const mounted_image mounted(rig.store.blob(image->digest));
  const auto differing =
      differences(rig.tree, mounted.root(), {"dev/mem", "dev/s[d]a*\\", "whiteout", "sock"});
  for (const auto& d : differing) UNSCOPED_INFO(d);
  CHECK(differing.empty());
  for (const auto& file : {"sub", "block"}) {
    for (const auto& [name, value] : attributes(mounted.root() / file))
      CHECK(name.substr(0, 8) != "trusted.");
  }
  CHECK(attributes(mounted.root() / "block").size() == 2);
}

TEST_CASE("equal trees give one digest, whatever order their directories are in", "[import]") {
  SKIP_WHERE_IMPOSSIBLE();
  import_rig rig;
  plant(rig.tree);
  // tmpfs lists a directory in another order than the disk does.
  const auto other = rig.dir / "other";
  std::filesystem::create_directory(other);
  REQUIRE(::mount("none", other.c_str(), "tmpfs", 0, "size=64m") == 0);
  const auto copied =
      std::system(("cp -a '" + rig.tree.string() + "' '" + other.string() + "/tree'").c_str());
  const auto one = rig.import("one", rig.tree.string());
  const auto again = rig.import("again", rig.tree.string());
  const auto two = rig.import("two", (other / "tree").string());
  ::umount2(other.c_str(), MNT_DETACH);
  REQUIRE(copied == 0);
  INFO(why(one));
  REQUIRE(one);
  INFO(why(again));
  REQUIRE(again);
  CHECK(one->digest == again->digest);
  if (two) {
    CHECK(one->digest == two->digest);
  } else {
    FAIL(two.error().to_string());
  }
  CHECK(rig.blobs() == 1);
}

TEST_CASE("importing an unchanged directory again converts nothing, a changed one does",
          "[import]") {
  SKIP_WHERE_IMPOSSIBLE();
  import_rig rig;
  write(rig.tree / "a", "one");
  const auto conversions = [&] {
    const auto told = rig.told();
    return std::ranges::count_if(
        told, [](const std::string& line) { return line.starts_with("convert:"); });
  };
  const auto first = rig.import("a", rig.tree.string());
  INFO(why(first));
  REQUIRE(first);
  CHECK(rig.import("a", rig.tree.string()).value().created_unix_ms == first->created_unix_ms);
  CHECK(conversions() == 1);
  write(rig.tree / "a", "two");
  const auto second = rig.import("a", rig.tree.string());
  INFO(why(second));
  REQUIRE(second);
  CHECK(second->digest != first->digest);
  CHECK(conversions() == 2);
  CHECK(rig.blobs() == 1);

  write(rig.dir / "c.json", R"({"Env":["A=1"]})");
  CHECK(rig.import("a", rig.tree.string(), rig.dir / "c.json").value().config.env.size() == 1);
  CHECK(conversions() == 3);

  const auto blob = rig.store.blob(second->digest);
  auto bytes = slurp(blob);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write(blob, bytes, 0400);
  CHECK(rig.import("a", rig.tree.string(), rig.dir / "c.json"));
  CHECK(conversions() == 4);
  CHECK(rig.store.verify(second->digest));
}

TEST_CASE("sixteen imports of one directory at once make one image and all succeed",
          "[import][C33]") {
  SKIP_WHERE_IMPOSSIBLE();
  import_rig rig;
  plant(rig.tree);
  std::vector<std::thread> threads;
  std::vector<std::string> digests(16);
  for (auto& digest : digests) {
    threads.emplace_back([&] {
      if (const auto image = rig.import("a:1", rig.tree.string())) digest = image->digest;
    });
  }
  for (auto& t : threads) t.join();
  CHECK_FALSE(digests[0].empty());
  CHECK(std::ranges::count(digests, digests[0]) == 16);
  const auto told = rig.told();
  CHECK(std::ranges::count_if(told,
                              [](const std::string& l) { return l.starts_with("convert:"); }) == 1);
  CHECK(rig.leftovers().empty());
}

TEST_CASE("the configuration comes from the file given, else from the tree, else there is none",
          "[import]") {
  SKIP_WHERE_IMPOSSIBLE();
  import_rig rig;
  CHECK(rig.import("a", rig.tree.string()).value().config == dsec::fs::image_config{});
  write(rig.tree / ".dsec/image.json", R"({"config":{"WorkingDir":"/inside"}})");
  const auto inside = rig.import("a", rig.tree.string());
  INFO(why(inside));
  REQUIRE(inside);
  CHECK(inside->config.cwd == "/inside");
  {
    const mounted_image mounted(rig.store.blob(inside->digest));
    CHECK(differences(rig.tree, mounted.root()).empty());
  }
  write(rig.dir / "given.json", R"({"User":"joe"})");
  const auto given = rig.import("a", rig.tree.string(), rig.dir / "given.json");
  INFO(why(given));
  REQUIRE(given);
  CHECK(given->config.user == "joe");
  CHECK_FALSE(given->config.cwd);
}

TEST_CASE("a hostile configuration in the tree is refused by name and nothing is left",
          "[import][threat-17]") {
  SKIP_WHERE_IMPOSSIBLE();
  import_rig rig;
  const auto file = rig.tree / ".dsec/image.json";
  const auto refused = [&](errc code) {
    const auto image = rig.import("a", rig.tree.string());
    REQUIRE_FALSE(image);
    CHECK(image.error().code == code);
    CHECK_THAT(image.error().message, Catch::Contains(file.string()));
    CHECK(rig.leftovers().empty());
    CHECK(rig.blobs() == 0);
    std::filesystem::remove_all(rig.tree / ".dsec");
  };
  write(file, std::string(2U << 20U, ' '));
  refused(errc::too_large);
  write(file, R"({"Env":)" + std::string(1'000'000, '['));
  refused(errc::invalid_argument);
  write(file, R"({"config":{"Env":{"A":1}}})");
  refused(errc::invalid_argument);
  write(file, "");
  refused(errc::invalid_argument);
  std::filesystem::create_directories(rig.tree / ".dsec");
  std::filesystem::create_symlink("/etc/shadow", file);
  refused(errc::invalid_argument);
  std::filesystem::create_directory_symlink("/etc", rig.tree / ".dsec");
  refused(errc::invalid_argument);
  std::filesystem::create_directories(rig.tree / ".dsec");
  REQUIRE(::mkfifo(file.c_str(), 0600) == 0);
  refused(errc::invalid_argument);
  std::filesystem::create_directories(file);
  refused(errc::invalid_argument);
}

TEST_CASE("sources that cannot become a layer are refused by name and nothing is left",
          "[import][threat-17]") {
  SKIP_WHERE_IMPOSSIBLE();
  import_rig rig;
  const auto refused = [&](const std::string& source, errc code, const std::string& says) {
    const auto image = rig.import("a", source);
    INFO(source);
    REQUIRE_FALSE(image);
    CHECK(image.error().code == code);
    CHECK_THAT(image.error().message, Catch::Contains(says));
    CHECK(rig.leftovers().empty());
  };
  refused((rig.dir / "missing").string(), errc::not_found, "missing");
  write(rig.dir / "file", "x");
  refused((rig.dir / "file").string(), errc::invalid_argument, "is not a directory");
  refused(rig.dir.path().string(), errc::invalid_argument, "contains the image store");
  CHECK(rig.import("../a", rig.tree.string()).error().code == errc::invalid_argument);
  CHECK(rig.import("a", rig.tree.string(), rig.dir / "missing.json").error().code ==
        errc::not_found);

  write(rig.tree / "far", "x");
  REQUIRE(::chown((rig.tree / "far").c_str(), 100'000, 0) == 0);
  refused(rig.tree.string(), errc::invalid_argument, (rig.tree / "far").string());
  std::filesystem::remove(rig.tree / "far");

  const std::string longest(255, 'n');
  write(rig.tree / longest, "x");
  refused(rig.tree.string(), errc::invalid_argument, longest + ": mkfs.erofs cannot store");
  std::filesystem::remove(rig.tree / longest);

  std::filesystem::create_directory(rig.tree / "proc");
  REQUIRE(::mount("none", (rig.tree / "proc").c_str(), "tmpfs", 0, "size=1m") == 0);
  refused(rig.tree.string(), errc::invalid_argument, "is another file system");
  ::umount2((rig.tree / "proc").c_str(), MNT_DETACH);
  CHECK(rig.import("a", rig.tree.string()));
}

TEST_CASE("a full disk is an error that says so, before and while writing, and leaves nothing",
          "[import]") {
  SKIP_WHERE_IMPOSSIBLE();
  import_rig rig;
  std::filesystem::create_directory(rig.dir / "state");
  REQUIRE(::mount("none", (rig.dir / "state").c_str(), "tmpfs", 0, "size=4m,mode=700") == 0);
  write(rig.tree / "big", std::string(6'000'000, 'x'));
  const auto expected = rig.import("big", rig.tree.string());
  std::filesystem::remove(rig.tree / "big");
  // Extended attributes are not in the estimate: the disk fills while mkfs.erofs writes.
  for (int i = 0; i < 2'000; ++i) {
    const auto file = rig.tree / std::to_string(i);
    write(file, "");
    set_attribute(file, "user.bulk", std::string(3'500, static_cast<char>('a' + i % 26)));
  }
  const auto unexpected = rig.import("many", rig.tree.string());
  const auto left = rig.leftovers();
  const auto blobs = rig.blobs();
  ::umount2((rig.dir / "state").c_str(), MNT_DETACH);
  for (const auto* outcome : {&expected, &unexpected}) {
    REQUIRE_FALSE(*outcome);
    CHECK(outcome->error().code == errc::io);
    CHECK(outcome->error().sys_errno == ENOSPC);
  }
  CHECK_THAT(expected.error().message, Catch::Contains("needs 6 MiB"));
  CHECK_THAT(unexpected.error().message, Catch::Contains("mkfs.erofs"));
  CHECK(left.empty());
  CHECK(blobs == 0);
}

TEST_CASE("a tree that changes while it is read is not taken", "[import]") {
  SKIP_WHERE_IMPOSSIBLE();
  import_rig rig;
  write(rig.tree / "a", "one");
  rig.stand_in("mkfs.erofs",
               "/usr/bin/mkfs.erofs \"$@\" && echo two > " + (rig.tree / "a").string());
  const auto image = rig.import("a", rig.tree.string());
  REQUIRE_FALSE(image);
  CHECK(image.error().code == errc::unavailable);
  CHECK(rig.blobs() == 0);
  CHECK(rig.leftovers().empty());
}

TEST_CASE("without mkfs.erofs the error names the package to install", "[import]") {
  SKIP_WHERE_IMPOSSIBLE();
  import_rig rig;
  rig.stand_in("nothing", "");
  ::setenv("PATH", (rig.dir / "bin").c_str(), 1);
  const auto image = rig.import("a", rig.tree.string());
  REQUIRE_FALSE(image);
  CHECK(image.error().code == errc::unsupported);
  CHECK_THAT(image.error().message, Catch::Contains("install the package erofs-utils"));
}

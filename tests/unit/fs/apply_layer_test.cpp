// Layers applied in this process, without the confinement of the program around it: what comes out,
// and what is refused.

#include "fs/unpack/apply_layer.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <functional>

#include "base/sha256.hpp"
#include "fs/unpack/archive.hpp"
#include "fs/unpack/layer_stream.hpp"
#include "fs/unpack/tree_writer.hpp"
#include "support/skip.hpp"
#include "support/tar_builder.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace dsec::tests;
using namespace dsec::fs::unpack;
using dsec::base::errc;
using dsec::base::unique_fd;

#define NEEDS_ROOT()                                                \
  if (::geteuid() != 0) {                                           \
    dsec::test::say_skipped("needs root: owners of files are set"); \
    return;                                                         \
  }

/// By libarchive's writer of one nameless member.
std::string packed(const std::string& bytes, compression how) {
  std::string out(bytes.size() + (1U << 16U), '\0');
  std::size_t used = 0;
  archive* a = ::archive_write_new();
  ::archive_write_set_format_raw(a);
  if (how == compression::gzip) ::archive_write_add_filter_gzip(a);
  if (how == compression::zstd) ::archive_write_add_filter_zstd(a);
  archive_entry* e = ::archive_entry_new();
  ::archive_entry_set_filetype(e, AE_IFREG);
  REQUIRE(::archive_write_open_memory(a, out.data(), out.size(), &used) == ARCHIVE_OK);
  REQUIRE(::archive_write_header(a, e) == ARCHIVE_OK);
  REQUIRE(::archive_write_data(a, bytes.data(), bytes.size()) ==
          static_cast<la_ssize_t>(bytes.size()));
  REQUIRE(::archive_write_close(a) == ARCHIVE_OK);
  ::archive_entry_free(e);
  ::archive_write_free(a);
  out.resize(used);
  return out;
}

struct bench {
  temp_dir dir;
  std::filesystem::path root = dir / "root";
  plan p{root, {}, {}};

  bench() { std::filesystem::create_directory(root); }

  bench& layer(const std::string& tar) { return blob(tar, tar, compression::none); }
  /// A blob that is said to unpack to that tar.
  bench& blob(const std::string& bytes, const std::string& tar, compression how) {
    const auto file = dir / ("blob" + std::to_string(p.layers.size()));
    write(file, bytes);
    p.layers.push_back(
        {file, how, bytes.size(), dsec::base::sha256_of(bytes), dsec::base::sha256_of(tar)});
    return *this;
  }
  bench& layer(const tar_builder& tar) { return layer(tar.done()); }

  dsec::base::result<report> apply() {
    std::vector<unique_fd> blobs;
    for (const auto& l : p.layers) {
      DSEC_TRY(auto fd, open_blob(l));
      blobs.push_back(std::move(fd));
    }
    return apply_layers(p, unique_fd(::open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)),
                        std::move(blobs));
  }

  [[nodiscard]] struct stat at(const std::string& name) const {
    struct stat st {};
    INFO(name);
    REQUIRE(::lstat((root / name).c_str(), &st) == 0);
    return st;
  }
  [[nodiscard]] bool has(const std::string& name) const {
    struct stat st {};
    return ::lstat((root / name).c_str(), &st) == 0;
  }
  [[nodiscard]] std::string attribute(const std::string& name, const char* key) const {
    std::string value(256, '\0');
    const auto n = ::lgetxattr((root / name).c_str(), key, value.data(), value.size());
    return n < 0 ? "none" : value.substr(0, static_cast<std::size_t>(n));
  }
};

void must(const dsec::base::result<report>& done) {
  INFO((done ? std::string() : done.error().to_string()));
  REQUIRE(done);
}

}  // namespace

TEST_CASE("files, directories, links and fifos come as the tar has them") {
  NEEDS_ROOT();
  bench b;
  tar_builder tar;
  tar.directory("d", 01777)
      .file("d/f", "content", 04755)
      .symlink("d/s", "../x y")
      .hard_link("d/h", "d/f");
  tar.add({"d/p", '6', {}, {}, 0620, 5, 6});
  tar.add({"owned", '0', "x", {}, 0, 65535, 1000, 1'234'567'890});
  must(b.layer(tar).apply());
  CHECK((b.at("d").st_mode & 07777U) == 01777);
  CHECK(slurp(b.root / "d/f") == "content");
  CHECK((b.at("d/f").st_mode & 07777U) == 04755);
  CHECK(b.at("d/f").st_ino == b.at("d/h").st_ino);
  CHECK(std::filesystem::read_symlink(b.root / "d/s") == "../x y");
  CHECK(b.at("d/s").st_mtim.tv_sec == 1'000'000'000);
  CHECK(S_ISFIFO(b.at("d/p").st_mode));
  CHECK((b.at("d/p").st_mode & 07777U) == 0620);
  CHECK(b.at("d/p").st_uid == 5);
  CHECK(b.at("d/p").st_gid == 6);
  CHECK(b.at("owned").st_uid == 65535);
  CHECK(b.at("owned").st_gid == 1000);
  CHECK((b.at("owned").st_mode & 07777U) == 0);
  CHECK(b.at("owned").st_mtim.tv_sec == 1'234'567'890);
}

TEST_CASE("times keep their fractions, and directories keep theirs when entries come later") {
  NEEDS_ROOT();
  bench b;
  tar_builder low;
  low.add({"d", '5', {}, {}, 0755, 0, 0, 1, {{"mtime", "123.456789012"}}});
  low.file("d/a").file("implied/x/y");
  tar_builder high;
  high.file("d/b").file("d/.wh.a").file("implied/z");
  must(b.layer(low).layer(high).apply());
  CHECK(b.at("d").st_mtim.tv_sec == 123);
  CHECK(b.at("d").st_mtim.tv_nsec == 456'789'012);
  CHECK(b.at("implied").st_mtim.tv_sec == 0);
  CHECK((b.at("implied/x").st_mode & 07777U) == 0755);
  CHECK(b.has("d/b"));
  CHECK_FALSE(b.has("d/a"));
  CHECK(b.at("").st_mtim.tv_sec == 0);
}

TEST_CASE("the root's own entry counts") {
  NEEDS_ROOT();
  bench b;
  must(b.layer(tar_builder().add({"./", '5', {}, {}, 0711, 1, 2, 99})).apply());
  CHECK((b.at("").st_mode & 07777U) == 0711);
  CHECK(b.at("").st_uid == 1);
  CHECK(b.at("").st_mtim.tv_sec == 99);
}

TEST_CASE("whiteouts hide what is below, not what the same layer has") {
  NEEDS_ROOT();
  bench b;
  tar_builder low;
  low.file("gone").file("kept").file("dir/a").file("dir/sub/b").file("new/old").file("opaque/old");
  tar_builder high;
  high.file(".wh.gone")
      .file("new/x", "1")
      .file(".wh.new")
      .file("opaque/mine")
      .file("opaque/.wh..wh..opq");
  high.file(".wh.dir").file("again").file(".wh.again").file(".wh.never").file("no/.wh.where");
  must(b.layer(low).layer(high).apply());
  CHECK_FALSE(b.has("gone"));
  CHECK(b.has("kept"));
  CHECK_FALSE(b.has("dir"));
  CHECK(b.has("new/x"));
  CHECK_FALSE(b.has("new/old"));
  CHECK(b.has("opaque/mine"));
  CHECK_FALSE(b.has("opaque/old"));
  CHECK(b.has("again"));
  CHECK_FALSE(b.has("no"));
  CHECK_FALSE(b.has(".wh.gone"));
}

TEST_CASE("what was written by a layer counts as lower for the next") {
  NEEDS_ROOT();
  bench b;
  must(b.layer(tar_builder().file("a/x"))
           .layer(tar_builder().file("a/y").file("a/.wh.x"))
           .layer(tar_builder().file("a/.wh..wh..opq").file("a/z"))
           .apply());
  CHECK_FALSE(b.has("a/x"));
  CHECK_FALSE(b.has("a/y"));
  CHECK(b.has("a/z"));
}

TEST_CASE("a name that another kind of file had is taken") {
  NEEDS_ROOT();
  bench b;
  tar_builder low;
  low.file("dir/deep/x").file("file").symlink("link", "dir");
  low.symlink("to-dir", "dir").file("both", "low");
  low.hard_link("other", "both");
  tar_builder high;
  high.file("dir", "now a file").directory("file").file("file/x").file("link", "no link");
  high.directory("to-dir", 0700).file("both", "high");
  must(b.layer(low).layer(high).apply());
  CHECK(slurp(b.root / "dir") == "now a file");
  CHECK(b.has("file/x"));
  CHECK(S_ISREG(b.at("link").st_mode));
  CHECK(S_ISDIR(b.at("to-dir").st_mode));
  CHECK(slurp(b.root / "both") == "high");
  CHECK(slurp(b.root / "other") == "low");  // not written through
}

TEST_CASE("a directory described again loses the attributes it had and keeps what is in it") {
  NEEDS_ROOT();
  bench b;
  tar_builder low;
  low.add({"d", '5', {}, {}, 0700, 0, 0, 5, {{"SCHILY.xattr.user.old", "1"}}}).file("d/x");
  tar_builder high;
  high.add({"d", '5', {}, {}, 0750, 7, 0, 6, {{"SCHILY.xattr.user.new", "2"}}});
  must(b.layer(low).layer(high).apply());
  CHECK(b.has("d/x"));
  CHECK(b.attribute("d", "user.old") == "none");
  CHECK(b.attribute("d", "user.new") == "2");
  CHECK(b.at("d").st_uid == 7);
  CHECK(b.at("d").st_mtim.tv_sec == 6);
}

TEST_CASE("hard links reach into lower layers") {
  NEEDS_ROOT();
  bench b;
  must(b.layer(tar_builder().file("a/f", "one").symlink("a/s", "f"))
           .layer(tar_builder()
                      .hard_link("b/g", "a/f")
                      .hard_link("b/s", "/a/s")
                      .hard_link("a/f", "a/f"))
           .apply());
  CHECK(b.at("a/f").st_ino == b.at("b/g").st_ino);
  CHECK(b.at("a/s").st_ino == b.at("b/s").st_ino);
  CHECK(S_ISLNK(b.at("b/s").st_mode));
}

TEST_CASE("a hard link of a lower file does not save its other name from a whiteout") {
  NEEDS_ROOT();
  bench b;
  must(b.layer(tar_builder().file("a", "one"))
           .layer(tar_builder().hard_link("b", "a").file(".wh.a"))
           .apply());
  CHECK_FALSE(b.has("a"));
  CHECK(slurp(b.root / "b") == "one");
}

TEST_CASE("holes stay holes") {
  NEEDS_ROOT();
  bench b;
  // GNU's sparse format 1.0: a map before the data, 2 pieces of one block in 8 MiB.
  const std::string map = "2\n0\n512\n8388096\n512\n";
  auto content =
      map + std::string(512 - map.size(), '\0') + std::string(512, 'a') + std::string(512, 'z');
  tar_entry e{"GNUSparseFile.0/sparse", '0', content};
  e.pax = {{"GNU.sparse.major", "1"},
           {"GNU.sparse.minor", "0"},
           {"GNU.sparse.name", "sparse"},
           {"GNU.sparse.realsize", "8388608"}};
  const auto done = b.layer(tar_builder().add(e)).apply();
  must(done);
  CHECK(done->bytes == 8'388'608);
  const auto st = b.at("sparse");
  CHECK(st.st_size == 8'388'608);
  CHECK(st.st_blocks * 512 < 1'000'000);
  const auto bytes = slurp(b.root / "sparse");
  CHECK(bytes.substr(0, 513) == std::string(512, 'a') + std::string(1, '\0'));
  CHECK(bytes.substr(bytes.size() - 513) == std::string(1, '\0') + std::string(512, 'z'));
}

TEST_CASE("names are bytes, however long and whatever they say") {
  NEEDS_ROOT();
  bench b;
  const std::string decomposed = "e\xcc\x81";  // e and an accent, which is not the letter with one
  std::string deep;
  for (int i = 0; i < 12; ++i) deep += std::string(200, static_cast<char>('a' + i)) + "/";
  tar_builder tar;
  tar.file("raw-\xff\xfe").file(decomposed).file("new\nline");
  tar.add({"x", '0', "1", {}, 0644, 0, 0, 1, {{"path", "pax-\xff\xfe"}}});
  tar.add({"x", '0', "2", {}, 0644, 0, 0, 1, {{"path", "pax-" + decomposed}}});
  tar.add({"l", '2', {}, "x", 0777, 0, 0, 1, {{"linkpath", "to-\xff" + decomposed}}});
  tar.add({"k", '1', {}, "x", 0777, 0, 0, 1, {{"linkpath", "pax-\xff\xfe"}}});
  tar.file(deep + "f", "far");
  // GNU's own way: a member of type L holds the name of the next.
  tar.add({"././@LongLink", 'L', "gnu/" + std::string(240, 'g') + std::string(1, '\0')});
  tar.file("short", "long");
  must(b.layer(tar).apply());
  for (const auto& name : {std::string("raw-\xff\xfe"), decomposed, std::string("new\nline"),
                           std::string("pax-\xff\xfe"), "pax-" + decomposed})
    CHECK(b.has(name));
  CHECK(std::filesystem::read_symlink(b.root / "l") == "to-\xff" + decomposed);
  CHECK(b.at("k").st_ino == b.at("pax-\xff\xfe").st_ino);
  CHECK(slurp(b.root / (deep + "f")) == "far");
  CHECK(slurp(b.root / ("gnu/" + std::string(240, 'g'))) == "long");
}

TEST_CASE("attributes that an image may have are kept, others are left out and told",
          "[threat-17]") {
  NEEDS_ROOT();
  bench b;
  const std::string capability("\1\0\0\2\0\x20\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20);
  tar_builder tar;
  tar.add({"f",
           '0',
           "x",
           {},
           0755,
           0,
           0,
           1,
           {{"SCHILY.xattr.user.a", "b"},
            {"SCHILY.xattr.security.capability", capability},
            {"SCHILY.xattr.trusted.overlay.opaque", "y"},
            {"SCHILY.xattr.security.selinux", "label"}}});
  tar.add({"s", '2', {}, "f", 0777, 0, 0, 1, {{"SCHILY.xattr.user.a", "b"}}});
  const auto done = b.layer(tar).apply();
  must(done);
  CHECK(b.attribute("f", "user.a") == "b");
  CHECK(b.attribute("f", "security.capability") == capability);
  CHECK(b.attribute("f", "trusted.overlay.opaque") == "none");
  REQUIRE(done->findings.size() == 1);
  CHECK_THAT(done->findings[0], Catch::Contains("left out 3 extended attributes"));
  CHECK_THAT(done->findings[0], Catch::Contains("trusted.overlay.opaque of f"));
}

TEST_CASE("device nodes are left out and told, and take the place of what was there",
          "[threat-17]") {
  NEEDS_ROOT();
  bench b;
  tar_builder high;
  high.add({"dev/mem", '3'}).add({"sda", '4'}).hard_link("dev/alias", "dev/mem");
  const auto done = b.layer(tar_builder().file("sda", "lower")).layer(high).apply();
  must(done);
  CHECK_FALSE(b.has("dev/mem"));
  CHECK_FALSE(b.has("dev/alias"));
  CHECK_FALSE(b.has("sda"));
  REQUIRE(done->findings.size() == 1);
  CHECK(done->findings[0] == "left out 3 device nodes (dev/mem, sda, dev/alias)");
}

TEST_CASE("symbolic links in the middle of a name lead nowhere but inside", "[threat-17]") {
  NEEDS_ROOT();
  bench b;
  write(b.dir / "outside/file", "untouched");
  const auto outside = (b.dir / "outside").string();
  tar_builder tar;
  tar.directory("usr/lib").symlink("lib", "usr/lib").file("lib/x", "in usr");
  tar.directory("etc").symlink("abs", "/etc").file("abs/passwd", "inside");
  tar.symlink("up", "../../../../etc").file("up/shadow", "inside");
  tar.directory(outside.substr(1)).symlink("out", outside).file("out/file", "inside");
  tar.symlink("self", "lib/../../../..").file("self/at-root", "inside");
  must(b.layer(tar).apply());
  CHECK(slurp(b.root / "usr/lib/x") == "in usr");
  CHECK(slurp(b.root / "etc/passwd") == "inside");
  CHECK(slurp(b.root / "etc/shadow") == "inside");
  CHECK(slurp(b.dir / "outside/file") == "untouched");
  CHECK(slurp(b.root / outside.substr(1) / "file") == "inside");
  CHECK(b.has("at-root"));
}

TEST_CASE("an entry may take the place of the very link that leads to it") {
  NEEDS_ROOT();
  bench b;
  tar_builder tar;
  tar.directory("d").symlink("d/l", "/d").directory("d/l/l").file("d/l/x", "in the new directory");
  tar.symlink("e", "/d").file("e/y").file(".wh.e").file("d/z");
  must(b.layer(tar).apply());
  CHECK(S_ISDIR(b.at("d/l").st_mode));
  CHECK(slurp(b.root / "d/l/x") == "in the new directory");
  CHECK_FALSE(b.has("d/x"));
  CHECK(b.has("d/y"));
  CHECK(b.has("d/z"));
}

TEST_CASE("hostile entries are refused by layer and name", "[threat-17]") {
  NEEDS_ROOT();
  const auto refused = [](const tar_builder& tar, errc code, const std::string& says) {
    bench b;
    const auto done = b.layer(tar).apply();
    INFO(says);
    REQUIRE_FALSE(done);
    INFO(done.error().message);
    CHECK(done.error().code == code);
    CHECK_THAT(done.error().message, Catch::Contains(says));
    CHECK_THAT(done.error().message, Catch::Contains(b.p.layers[0].digest));
  };
  refused(tar_builder().file("../escape"), errc::invalid_argument, "'../escape' leads out");
  refused(tar_builder().file("a/../../escape"), errc::invalid_argument, "leads out");
  refused(tar_builder().file("a").hard_link("b", "../../etc/shadow"), errc::invalid_argument,
          "leads out");
  refused(tar_builder().symlink("l", "/etc").hard_link("b", "l/shadow"), errc::invalid_argument,
          "'l/shadow', which is not there");
  refused(tar_builder().hard_link("b", "nowhere"), errc::invalid_argument, "which is not there");
  refused(tar_builder().directory("d").hard_link("b", "d"), errc::invalid_argument,
          "a hard link to a directory");
  refused(tar_builder().hard_link("b", "/"), errc::invalid_argument, "a hard link to a directory");
  refused(tar_builder().file("f").file("f/x"), errc::invalid_argument, "'f' is not a directory");
  refused(tar_builder().symlink("l", "nowhere").file("l/x"), errc::invalid_argument,
          "'l' is a symbolic link that leads nowhere");
  refused(tar_builder().symlink("l", "l").file("l/x"), errc::invalid_argument, "'l'");
  refused(tar_builder().file(".wh..."), errc::invalid_argument, "whiteout of nothing");
  refused(tar_builder().file("."), errc::invalid_argument, "not a directory");
  refused(tar_builder().add({"far", '0', {}, {}, 0644, 65'536}), errc::invalid_argument,
          "'far' belongs to 65536:0");
  refused(tar_builder().file(std::string(300, 'n')), errc::invalid_argument, "more than 255 bytes");
  std::string deep;
  for (int i = 0; i < 300; ++i) deep += "d/";
  refused(tar_builder().file(deep + "f"), errc::too_large, "deeper than 256");
  tar_builder winding;  // no name is long, what they lead to is
  winding.symlink("l0", ".");
  for (int i = 0; i < 40; ++i) {
    const auto here = "l" + std::to_string(i);
    const auto next = std::string(200, static_cast<char>('a' + i % 26));
    winding.directory(here + "/" + next);
    winding.symlink("l" + std::to_string(i + 1), here + "/" + next);
  }
  refused(winding, errc::too_large, "longer than");
  refused(tar_builder().raw(std::string(4096, 'x')), errc::corrupt, "its tar");
}

TEST_CASE("tars that end too early or lie about sizes are corrupt", "[threat-17]") {
  NEEDS_ROOT();
  const auto corrupt = [](const std::string& tar) {
    bench b;
    const auto done = b.layer(tar).apply();
    REQUIRE_FALSE(done);
    INFO(done.error().message);
    CHECK(done.error().code == errc::corrupt);
  };
  const auto whole = tar_builder().file("a", std::string(5000, 'x')).cut();
  corrupt(whole.substr(0, 2000));
  corrupt(whole.substr(0, 300));
  corrupt(whole.substr(0, 512 + 4999));
  bench unpadded;  // as `umoci insert` writes it
  must(unpadded.layer(whole.substr(0, 512 + 5000)).apply());
  CHECK(std::filesystem::file_size(unpadded.root / "a") == 5000);
  tar_entry lies{"a", '0', "short"};
  lies.said_size = 1'000'000;
  corrupt(tar_builder().add(lies).done());
  auto flipped = tar_builder().file("a").done();
  flipped[3] = 'b';  // the checksum of the header
  corrupt(flipped);
}

TEST_CASE("an empty layer is a layer") {
  NEEDS_ROOT();
  bench b;
  must(b.layer(std::string()).layer(tar_builder()).layer(tar_builder().file("x").cut()).apply());
  CHECK(b.has("x"));
}

TEST_CASE("compressed layers are unpacked, damaged ones are corrupt", "[threat-17]") {
  NEEDS_ROOT();
  const auto tar = tar_builder().file("a", std::string(300'000, 'x')).file("b", "end").done();
  for (const auto how : {compression::gzip, compression::zstd}) {
    const auto blob = packed(tar, how);
    REQUIRE(blob.size() < tar.size() / 10);
    bench good;
    must(good.blob(blob, tar, how).apply());
    CHECK(slurp(good.root / "b") == "end");
    CHECK(std::filesystem::file_size(good.root / "a") == 300'000);
    const auto corrupt = [&](const std::string& bytes) {
      bench b;
      const auto done = b.blob(bytes, tar, how).apply();
      REQUIRE_FALSE(done);
      INFO(done.error().message);
      CHECK(done.error().code == errc::corrupt);
      CHECK_THAT(done.error().message, Catch::Contains(b.p.layers[0].digest));
    };
    corrupt(blob.substr(0, blob.size() / 2));
    corrupt(blob.substr(0, 5));
    corrupt("");
    corrupt("not compressed at all");
    bench bomb;
    bomb.p.most.ratio = 50;
    const auto zeros = tar_builder().file("zeros", std::string(20U << 20U, '\0')).done();
    const auto refused = bomb.blob(packed(zeros, how), zeros, how).apply();
    REQUIRE_FALSE(refused);
    CHECK(refused.error().code == errc::too_large);
    CHECK_THAT(refused.error().message, Catch::Contains("import.max_ratio"));
  }
}

TEST_CASE("limits on bytes, entries and ratio name themselves and the layer", "[threat-17]") {
  NEEDS_ROOT();
  const auto refused = [](const limits& most, const tar_builder& tar, const std::string& says) {
    bench b;
    b.p.most = most;
    const auto done = b.layer(tar).apply();
    REQUIRE_FALSE(done);
    INFO(done.error().message);
    CHECK(done.error().code == errc::too_large);
    CHECK_THAT(done.error().message, Catch::Contains(says));
    CHECK_THAT(done.error().message, Catch::Contains(b.p.layers[0].digest));
  };
  const auto big = tar_builder().file("big", std::string(1U << 20U, 'x'));
  refused({1000, 10, 10}, big, "import.max_mb");
  refused({10U << 20U, 2, 10}, tar_builder().file("a").file("b").file("c"), "import.max_entries");
  tar_entry hole{"hole", '0', "1\n0\n0\n" + std::string(506, '\0')};
  hole.pax = {{"GNU.sparse.major", "1"},
              {"GNU.sparse.minor", "0"},
              {"GNU.sparse.realsize", "1099511627776"}};
  refused({10U << 20U, 10, 10}, tar_builder().add(hole), "import.max_mb");
  bench b;
  b.p.most = {2U << 20U, 1, 1};
  must(b.layer(big).apply());
}

TEST_CASE("a blob that is not what was promised is corrupt, and is named", "[threat-17]") {
  NEEDS_ROOT();
  const auto corrupt = [](const std::function<void(layer&)>& spoil, const std::string& says) {
    bench b;
    b.layer(tar_builder().file("x"));
    spoil(b.p.layers[0]);
    const auto done = b.apply();
    REQUIRE_FALSE(done);
    INFO(done.error().message);
    CHECK(done.error().code == errc::corrupt);
    CHECK_THAT(done.error().message, Catch::Contains(says));
  };
  const std::string other(64, 'a');
  corrupt([&](layer& l) { l.digest = other; }, "sha256:" + other + " is damaged");
  corrupt([&](layer& l) { l.diff_id = other; }, "configuration says sha256:" + other);
  corrupt([&](layer& l) { write(l.blob, std::string(l.size, 'x')); },
          "is damaged");  // no tar either
  corrupt([](layer& l) { ++l.size; }, "its manifest says");
  corrupt([](layer& l) { std::filesystem::remove(l.blob); }, "is missing");
  corrupt(
      [](layer& l) {
        std::filesystem::remove(l.blob);
        std::filesystem::create_symlink("/etc/passwd", l.blob);
      },
      "is a symbolic link");
  corrupt(
      [](layer& l) {
        std::filesystem::remove(l.blob);
        REQUIRE(::mkfifo(l.blob.c_str(), 0600) == 0);
      },
      "is not a regular file");
  corrupt(
      [](layer& l) {
        l.packed = compression::gzip;
        l.diff_id = std::string(64, 'b');
      },
      "unpacks to");
}

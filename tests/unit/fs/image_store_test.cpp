#include "fs/image_store.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <set>
#include <thread>

#include "base/failpoint.hpp"
#include "base/log.hpp"
#include "base/sha256.hpp"
#include "fs/files.hpp"
#include "fs/staging.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace dsec::fs;
using dsec::base::errc;
using dsec::tests::slurp;
using dsec::tests::temp_dir;

// What the store keeps is not looked into: any bytes will do for an EROFS image.
struct fixture {
  fixture() { dsec::base::log::set_level(dsec::base::log::level::error); }

  image add(layer_kind kind, const std::string& reference, const std::string& bytes,
            image_config config = {}) {
    const auto file = dir / "new.erofs";
    dsec::tests::write(file, bytes);
    auto added = store.add(kind, reference, file, std::move(config), "test", "print");
    REQUIRE(added);
    REQUIRE_FALSE(std::filesystem::exists(file));
    return *added;
  }
  [[nodiscard]] std::size_t blobs() const { return count("images/blobs/sha256"); }
  [[nodiscard]] std::size_t count(const char* below) const {
    const auto begin = std::filesystem::directory_iterator(dir / "state" / below);
    return static_cast<std::size_t>(std::distance(begin, std::filesystem::directory_iterator()));
  }
  [[nodiscard]] std::filesystem::path manifest(const char* name) const {
    return dir / "state/images/manifests/base" / name;
  }

  temp_dir dir;
  dsec::base::paths paths{dir / "state"};
  image_store store{paths};
};

}  // namespace

TEST_CASE("an added image is found by its name, whole") {
  fixture f;
  image_config config;
  config.env = {{"PATH", "/x"}};
  config.cwd = "/w";
  const auto added = f.add(layer_kind::base, "debian:12", "bytes", config);
  CHECK(added.digest == dsec::base::sha256_of("bytes"));
  const auto found = f.store.find(layer_kind::base, "debian:12");
  REQUIRE(found);
  CHECK(found->digest == added.digest);
  CHECK(found->size_bytes == 5);
  CHECK(found->created_unix_ms == added.created_unix_ms);
  CHECK(found->config == config);
  CHECK(found->source == "test");
  CHECK(found->fingerprint == "print");

  struct stat st {};
  REQUIRE(::stat(f.store.blob(added.digest).c_str(), &st) == 0);
  CHECK((st.st_mode & 07777) == 0400);
  REQUIRE(::stat((f.dir / "state").c_str(), &st) == 0);
  CHECK((st.st_mode & 07777) == 0700);
  CHECK(f.count("images/tmp") == 0);
}

TEST_CASE("kinds and tags are names of their own, listed in order") {
  fixture f;
  f.add(layer_kind::toolkit, "x", "1");
  f.add(layer_kind::base, "x:b", "2");
  f.add(layer_kind::base, "x:a", "2");
  const auto all = f.store.list();
  REQUIRE(all);
  REQUIRE(all->size() == 3);
  CHECK(all->at(0).tag == "a");
  CHECK(all->at(1).tag == "b");
  CHECK(all->at(2).kind == layer_kind::toolkit);
  CHECK(f.blobs() == 2);
}

TEST_CASE("an empty store lists nothing and says what to do") {
  fixture f;
  CHECK(f.store.list().value().empty());
  const auto missing = f.store.find(layer_kind::base, "debian");
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code == errc::not_found);
  CHECK_THAT(missing.error().message, Catch::Contains("dsecd image import"));
}

TEST_CASE("a missing image names the nearest and the others, and the same name of another kind") {
  fixture f;
  f.add(layer_kind::base, "debian-python:12", "1");
  f.add(layer_kind::base, "alpine:3", "2");
  f.add(layer_kind::toolkit, "pytest:8", "3");
  const auto typo = f.store.find(layer_kind::base, "debian-pyton:12");
  CHECK(typo.error().code == errc::not_found);
  CHECK_THAT(typo.error().message, Catch::Contains("no base image debian-pyton:12"));
  CHECK_THAT(typo.error().message, Catch::Contains("did you mean 'debian-python:12'?"));
  CHECK_THAT(typo.error().message, Catch::Contains("alpine:3"));
  CHECK_THAT(f.store.find(layer_kind::base, "pytest:8").error().message,
             Catch::Contains("there is a toolkit image pytest:8"));
  for (int i = 0; i < 30; ++i) f.add(layer_kind::base, "other" + std::to_string(i), "4");
  CHECK_THAT(typo.error().message, !Catch::Contains("more"));
  CHECK_THAT(f.store.find(layer_kind::base, "zzz").error().message, Catch::Contains("and 22 more"));
}

TEST_CASE("a blob goes with the last image that names it") {
  fixture f;
  const auto a = f.add(layer_kind::base, "a", "same");
  f.add(layer_kind::workspace, "b", "same");
  REQUIRE(f.store.remove(layer_kind::base, "a"));
  CHECK(std::filesystem::exists(f.store.blob(a.digest)));
  CHECK(f.store.find(layer_kind::workspace, "b"));
  REQUIRE(f.store.remove(layer_kind::workspace, "b"));
  CHECK(f.blobs() == 0);
  CHECK(f.store.remove(layer_kind::workspace, "b").error().code == errc::not_found);
}

TEST_CASE("replacing an image drops the blob that nothing names any more") {
  fixture f;
  f.add(layer_kind::base, "a", "one");
  f.add(layer_kind::base, "a", "two");
  CHECK(f.blobs() == 1);
  f.add(layer_kind::base, "b", "two");
  f.add(layer_kind::base, "a", "three");
  CHECK(f.blobs() == 2);
  CHECK(f.store.find(layer_kind::base, "b").value().digest == dsec::base::sha256_of("two"));
}

TEST_CASE("a blob that a killed add left unnamed goes with the next change") {
  fixture f;
  f.add(layer_kind::base, "a:1", "one");
  dsec::tests::write(f.store.blob(dsec::base::sha256_of("lost")), "lost");
  CHECK(f.blobs() == 2);
  SECTION("an add") {
    f.add(layer_kind::base, "b:1", "one");
  }
  SECTION("a remove") {
    f.add(layer_kind::base, "b:1", "one");
    dsec::tests::write(f.store.blob(dsec::base::sha256_of("lost")), "lost");
    REQUIRE(f.store.remove(layer_kind::base, "b:1"));
  }
  CHECK(f.blobs() == 1);
  CHECK(f.store.find(layer_kind::base, "a:1"));
}

TEST_CASE("a damaged manifest is reported by its file and hides no other image", "[threat-17]") {
  fixture f;
  f.add(layer_kind::base, "good", "1");
  f.add(layer_kind::base, "bad", "2");
  const auto file = f.manifest("bad@latest.json");
  const auto whole = slurp(file);
  const auto replaced = [&](const std::string& from, const std::string& to) {
    auto text = whole;
    REQUIRE(text.find(from) != std::string::npos);
    return text.replace(text.find(from), from.size(), to);
  };
  for (const auto& text :
       {std::string(), std::string("{"), whole.substr(0, whole.size() / 2), std::string("[]"),
        std::string("{}"), std::string(3U << 20U, 'x'), replaced("\"bad\"", "\"good\""),
        replaced("\"base\"", "\"toolkit\""), replaced("\"latest\"", "\"other\""),
        replaced(dsec::base::sha256_of("2"), "../../../etc/passwd"),
        replaced("\"version\": 1", "\"version\": \"1\""),
        replaced("\"size_bytes\": 1", "\"size_bytes\": -1"),
        replaced("\"config\": {}", "\"config\": 3"), std::string(100'000, '[')}) {
    INFO(text.substr(0, 300));
    dsec::tests::write(file, text);
    const auto found = f.store.find(layer_kind::base, "bad");
    REQUIRE_FALSE(found);
    CHECK((found.error().code == errc::corrupt || found.error().code == errc::too_large));
    CHECK_THAT(found.error().message, Catch::Contains("bad@latest.json"));
    std::vector<dsec::base::error> damaged;
    const auto all = f.store.list(&damaged);
    REQUIRE(all);
    REQUIRE(all->size() == 1);
    CHECK(all->at(0).name == "good");
    REQUIRE(damaged.size() == 1);
    CHECK_THAT(damaged[0].message, Catch::Contains("bad@latest.json"));
  }
  dsec::tests::write(file, replaced("\"version\": 1", "\"version\": 2"));
  CHECK(f.store.find(layer_kind::base, "bad").error().code == errc::unsupported);
  // While one manifest cannot be read, no blob is dropped: it might be the one that it names.
  REQUIRE(f.store.remove(layer_kind::base, "good"));
  CHECK(f.blobs() == 2);
  REQUIRE(f.store.remove(layer_kind::base, "bad"));
  CHECK(f.store.list().value().empty());
}

TEST_CASE("files that are no manifests are reported, and links are not images") {
  fixture f;
  f.add(layer_kind::base, "good", "1");
  dsec::tests::write(f.manifest("notes.txt"), "x");
  std::filesystem::create_directory(f.manifest("dir@latest.json"));
  std::vector<dsec::base::error> damaged;
  CHECK(f.store.list(&damaged).value().size() == 1);
  CHECK(damaged.size() == 2);
}

TEST_CASE("a missing or cut blob is found out before anything starts on it") {
  fixture f;
  const auto a = f.add(layer_kind::base, "a", "0123456789");
  const auto blob = f.store.blob(a.digest);
  REQUIRE(::chmod(blob.c_str(), 0600) == 0);
  REQUIRE(::truncate(blob.c_str(), 5) == 0);
  CHECK(f.store.find(layer_kind::base, "a").error().code == errc::corrupt);
  CHECK(f.store.verify(a.digest).error().code == errc::corrupt);
  std::filesystem::remove(blob);
  CHECK(f.store.find(layer_kind::base, "a").error().code == errc::corrupt);
  CHECK(f.store.verify(a.digest).error().code == errc::not_found);
  f.add(layer_kind::base, "a", "0123456789");
  CHECK(f.store.verify(a.digest));
}

TEST_CASE("a flipped byte in a blob is found and mended by the next import of the same content") {
  fixture f;
  const auto a = f.add(layer_kind::base, "a", "0123456789");
  const auto blob = f.store.blob(a.digest);
  dsec::tests::write(blob, "0123456780", 0400);
  CHECK(f.store.find(layer_kind::base, "a"));  // the size is right
  CHECK(f.store.verify(a.digest).error().code == errc::corrupt);
  f.add(layer_kind::workspace, "b", "0123456789");
  CHECK(f.store.verify(a.digest));
}

TEST_CASE("adds and removes of shared content at once never leave a name without its blob") {
  fixture f;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&f, t] {
      const auto file = f.dir / ("new" + std::to_string(t));
      const auto name = "image" + std::to_string(t % 2);
      for (int i = 0; i < 25; ++i) {
        dsec::tests::write(file, "content " + std::to_string(i % 3));
        (void)f.store.add(layer_kind::base, name, file, {});
        if (t >= 2) (void)f.store.remove(layer_kind::base, name);
      }
    });
  }
  for (auto& t : threads) t.join();
  std::set<std::string> named;
  const auto left = f.store.list();
  REQUIRE(left);
  for (const auto& i : *left) {
    CHECK(f.store.verify(i.digest));
    named.insert(i.digest);
  }
  CHECK(f.blobs() == named.size());
  CHECK(f.count("images/tmp") == 0);
}

#ifdef DSEC_FAILPOINTS
TEST_CASE("an add that fails after its blob is stored leaves neither blob nor scratch file") {
  fixture f;
  f.add(layer_kind::base, "a", "one");
  dsec::base::failpoint::arm("image_add.blob_taken", "error");
  dsec::tests::write(f.dir / "new", "two");
  CHECK_FALSE(f.store.add(layer_kind::base, "a", f.dir / "new", {}));
  dsec::base::failpoint::disarm_all();
  CHECK(f.blobs() == 1);
  CHECK(f.count("images/tmp") == 0);
  CHECK(f.store.find(layer_kind::base, "a").value().digest == dsec::base::sha256_of("one"));
}
#endif

TEST_CASE("staging directories go with their owner, abandoned ones with the next sweep") {
  fixture f;
  REQUIRE(f.store.prepare());
  const auto tmp = f.dir / "state/images/tmp";
  {
    auto mine = staging::make(f.paths);
    REQUIRE(mine);
    dsec::tests::write(mine->directory() / "a/b/c", "x");
    dsec::tests::write(tmp / "dead/root/etc/x", "x");
    std::filesystem::create_directory_symlink("/etc", tmp / "dead/root/link");
    dsec::tests::write(tmp / "dead.json", "x");
    std::filesystem::create_directory_symlink(f.dir.path(), tmp / "planted");
    CHECK(staging::sweep(f.paths).value() == 3);
    CHECK(std::filesystem::exists(mine->directory() / "a/b/c"));
    CHECK(f.count("images/tmp") == 1);
    CHECK(std::filesystem::exists("/etc/passwd"));
  }
  CHECK(f.count("images/tmp") == 0);
}

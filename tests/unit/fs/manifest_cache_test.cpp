#include "fs/manifest_cache.hpp"

#include <catch2/catch.hpp>
#include <string>

#include "base/log.hpp"
#include "fs/files.hpp"
#include "support/temp_dir.hpp"

namespace {

using namespace dsec::fs;
using dsec::base::errc;
using dsec::tests::temp_dir;

/// Two stores on one directory know of each other as two processes do.
struct fixture {
  fixture() { dsec::base::log::set_level(dsec::base::log::level::error); }
  image add(image_store& store, const std::string& reference, const std::string& bytes) {
    dsec::tests::write(dir / "new.erofs", bytes);
    auto added = store.add(layer_kind::base, reference, dir / "new.erofs", {});
    REQUIRE(added);
    return *added;
  }

  temp_dir dir;
  dsec::base::paths paths{dir / "state"};
  image_store mine{paths}, other{paths};
};

}  // namespace

TEST_CASE("an image that another process replaces or removes is seen by the next look") {
  fixture f;
  const auto first = f.add(f.other, "a", "one");
  for (int i = 0; i < 2; ++i) REQUIRE(f.mine.find(layer_kind::base, "a")->digest == first.digest);
  const auto second = f.add(f.other, "a", "two");
  CHECK(second.digest != first.digest);
  CHECK(f.mine.find(layer_kind::base, "a")->digest == second.digest);
  REQUIRE(f.other.remove(layer_kind::base, "a"));
  CHECK(f.mine.find(layer_kind::base, "a").error().code == errc::not_found);
}

TEST_CASE("a manifest or blob that is damaged after it was found is found out") {
  fixture f;
  const auto added = f.add(f.mine, "a", "one");
  REQUIRE(f.mine.find(layer_kind::base, "a"));
  SECTION("manifest") {
    dsec::tests::write(f.dir / "state/images/manifests/base/a@latest.json", "{");
  }
  SECTION("blob") {
    std::filesystem::remove(f.mine.blob(added.digest));
  }
  CHECK(f.mine.find(layer_kind::base, "a").error().code == errc::corrupt);
}

TEST_CASE("the cache is bounded") {
  manifest_cache cache;
  struct stat stamp {};
  const image any;
  for (std::size_t i = 0; i <= manifest_cache::max_entries; ++i) {
    cache.put(std::to_string(i), stamp, any);
  }
  CHECK_FALSE(cache.find("0", stamp));
  CHECK(cache.find(std::to_string(manifest_cache::max_entries), stamp));
}

#include "backends/container/spool_watch.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "support/eventually.hpp"
#include "support/temp_dir.hpp"

using namespace dsec;

namespace {

struct watched {
  tests::temp_dir dir;
  std::unique_ptr<sys::event_loop> loop = *sys::event_loop::start("test");
  container::spool_watch watch{*loop};
  std::atomic<int> calls{0};

  std::filesystem::path file(const std::string& name) {
    const auto path = dir.path() / name;
    write(path, "");
    return path;
  }
  static void write(const std::filesystem::path& path, const std::string& text) {
    std::ofstream(path, std::ios::app) << text << std::flush;
  }
  void wait_for(const std::filesystem::path& path) {
    REQUIRE(watch.once(path, [this] { ++calls; }));
  }
};

}  // namespace

TEST_CASE("who waits for a spool to grow is told once") {
  watched w;
  const auto file = w.file("a");
  watched::write(file, "before");
  w.wait_for(file);
  CHECK(w.calls == 0);
  watched::write(file, "more");
  CHECK(test::eventually([&] { return w.calls == 1; }));
  watched::write(file, "and more");
  w.wait_for(file);  // a second wait, so that the first one's events have passed
  watched::write(file, "again");
  CHECK(test::eventually([&] { return w.calls == 2; }));
}

TEST_CASE("all who wait for one spool are told, and nobody who waits for another") {
  watched w;
  const auto one = w.file("a");
  const auto other = w.file("b");
  std::atomic<int> others{0};
  w.wait_for(one);
  w.wait_for(one);
  REQUIRE(w.watch.once(other, [&] { ++others; }));
  watched::write(one, "x");
  CHECK(test::eventually([&] { return w.calls == 2; }));
  CHECK(others == 0);
  watched::write(other, "x");
  CHECK(test::eventually([&] { return others == 1; }));
}

TEST_CASE("who waits for a spool that is dropped is told") {
  watched w;
  const auto file = w.file("a");
  w.wait_for(file);
  std::filesystem::remove(file);
  CHECK(test::eventually([&] { return w.calls == 1; }));
}

TEST_CASE("a spool that is not there cannot be waited for") {
  watched w;
  const auto refused = w.watch.once(w.dir.path() / "none", [] {});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == base::errc::not_found);
}

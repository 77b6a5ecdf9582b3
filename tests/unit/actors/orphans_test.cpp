#include "actors/orphans.hpp"

#include <catch2/catch.hpp>
#include <filesystem>

#include "support/temp_dir.hpp"

using namespace dsec::actors;

TEST_CASE("a sandbox directory without a record is an orphan; recorded ones and slots are not") {
  const dsec::tests::temp_dir dir;
  const dsec::base::paths paths(dir / "state");
  CHECK(find_orphans(paths, {}).empty());
  for (const auto* name : {"e0-aaaa", "e0-bbbb", ".slot-3"}) {
    std::filesystem::create_directories(paths.sandboxes() / name / "spool");
  }
  sandbox_record known;
  known.id = "e0-aaaa";
  const auto found = find_orphans(paths, {known});
  REQUIRE(found == std::vector<std::string>{"e0-bbbb"});
  remove_sandbox_files(paths, found[0]);
  remove_sandbox_files(paths, found[0]);
  CHECK_FALSE(std::filesystem::exists(paths.sandboxes() / "e0-bbbb"));
  CHECK(std::filesystem::exists(paths.sandboxes() / "e0-aaaa/spool"));
}

TEST_CASE("what a killed removal had moved out of its directory is an orphan") {
  const dsec::tests::temp_dir dir;
  const dsec::base::paths paths(dir / "state");
  const std::string moved = ".rm-abcd-0";
  std::filesystem::create_directories(paths.sandboxes() / moved / "deep/deeper");
  REQUIRE(find_orphans(paths, {}) == std::vector<std::string>{moved});
  remove_sandbox_files(paths, moved);
  CHECK(std::filesystem::is_empty(paths.sandboxes()));
}

#include "base/store.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>

using dsec::base::durability;
using dsec::base::errc;
using dsec::base::open_sqlite;
using dsec::base::result;

namespace {

struct temp_directory {
  std::filesystem::path path;
  temp_directory() {
    std::string name = (std::filesystem::temp_directory_path() / "dsec-store-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~temp_directory() { std::filesystem::remove_all(path); }
  temp_directory(const temp_directory&) = delete;
  temp_directory& operator=(const temp_directory&) = delete;
};

const std::vector<std::string> v1{"CREATE TABLE t (k TEXT PRIMARY KEY, n INTEGER)"};

}  // namespace

TEST_CASE("what was written is there after reopening, bytes included") {
  const temp_directory dir;
  const std::string bytes("a\0b\xff", 4);
  {
    auto s = open_sqlite(dir.path / "s.db", durability::process, v1).value();
    REQUIRE(s->execute("INSERT INTO t VALUES (?, ?)", {bytes, std::int64_t{7}}));
  }
  auto s = open_sqlite(dir.path / "s.db", durability::power, v1).value();
  const auto rows = s->query("SELECT k, n FROM t").value();
  REQUIRE(rows.size() == 1);
  CHECK(std::get<std::string>(rows[0][0]) == bytes);
  CHECK(std::get<std::int64_t>(rows[0][1]) == 7);
}

TEST_CASE("a failed transaction leaves nothing") {
  const temp_directory dir;
  auto s = open_sqlite(dir.path / "s.db", durability::process, v1).value();
  const auto done = s->transaction([&]() -> result<void> {
    DSEC_CHECK(s->execute("INSERT INTO t VALUES ('a', 1)"));
    return s->execute("INSERT INTO t VALUES ('a', 2)");
  });
  REQUIRE_FALSE(done);
  CHECK(done.error().code == errc::already_exists);
  CHECK(s->query("SELECT * FROM t").value().empty());
}

TEST_CASE("migrations run once each and a newer store is refused") {
  const temp_directory dir;
  auto v2 = v1;
  v2.emplace_back("ALTER TABLE t ADD COLUMN extra TEXT");
  { REQUIRE(open_sqlite(dir.path / "s.db", durability::process, v1)); }
  { REQUIRE(open_sqlite(dir.path / "s.db", durability::process, v2)); }
  { REQUIRE(open_sqlite(dir.path / "s.db", durability::process, v2)); }
  const auto older = open_sqlite(dir.path / "s.db", durability::process, v1);
  REQUIRE_FALSE(older);
  CHECK(older.error().code == errc::unsupported);
}

TEST_CASE("a file that is no database is corrupt, a missing directory is i/o") {
  const temp_directory dir;
  std::ofstream(dir.path / "s.db") << std::string(8192, 'x');
  const auto damaged = open_sqlite(dir.path / "s.db", durability::process, v1);
  REQUIRE_FALSE(damaged);
  CHECK(damaged.error().code == errc::corrupt);
  const auto missing = open_sqlite(dir.path / "no" / "s.db", durability::process, v1);
  REQUIRE_FALSE(missing);
  CHECK(missing.error().code == errc::io);
}

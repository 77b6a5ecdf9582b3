// Reading spool files: what is kept, what was dropped, what is not known yet.
#include "backends/container/spool.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "backends/sys/temp_dir.hpp"
#include "guest/spool.hpp"

using namespace dsec;
using backends::stream;
using base::errc;

namespace {

constexpr std::uint64_t cap = 4096;

char byte_at(std::uint64_t position) {
  return static_cast<char>('a' + position % 23);
}

/// Writes `total` bytes of a stream as aether does.
void write_stream(int fd, std::uint64_t total) {
  const guest::spool_layout layout{cap};
  for (std::uint64_t p = 0; p < total; ++p) {
    const char c = byte_at(p);
    REQUIRE(::pwrite(fd, &c, 1, static_cast<off_t>(layout.file_offset(p))) == 1);
  }
}

struct spooled {
  sys::temp_dir dir = *sys::temp_dir::make("dsec-spool-test");
  container::spool_dir spool{dir.path()};

  explicit spooled(std::uint64_t total) {
    const auto files = spool.create("c");
    REQUIRE(files);
    write_stream(files->first.get(), total);
  }
  backends::output_piece read(std::uint64_t offset, std::uint64_t length,
                              std::optional<std::uint64_t> total) {
    const auto piece = spool.read("c", stream::out, cap, offset, length, total);
    REQUIRE(piece);
    return *piece;
  }
};

void check_bytes(const backends::output_piece& piece) {
  for (std::size_t i = 0; i < piece.data.size(); ++i)
    REQUIRE(piece.data[i] == byte_at(piece.offset + i));
}

}  // namespace

TEST_CASE("a stream that fits is read whole and in parts") {
  spooled s(3000);
  CHECK(s.read(0, 10'000, 3000).data.size() == 3000);
  const auto middle = s.read(2000, 500, 3000);
  CHECK(middle.offset == 2000);
  CHECK(middle.data.size() == 500);
  check_bytes(middle);
  CHECK(s.read(3000, 10, 3000).data.empty());
  CHECK(s.read(9000, 10, 3000).data.empty());
  CHECK(s.spool.read("c", stream::err, cap, 0, 10, 0)->data.empty());
}

TEST_CASE("what was dropped is jumped over and nothing is invented") {
  const std::uint64_t total = GENERATE(4097, 5000, 6144, 9999, 100'001);
  spooled s(total);
  std::uint64_t at = 0, kept = 0;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> gaps;
  while (at < total) {
    const auto piece = s.read(at, 700, total);
    REQUIRE_FALSE(piece.data.empty());
    if (piece.offset != at) gaps.emplace_back(at, piece.offset);
    check_bytes(piece);
    kept += piece.data.size();
    at = piece.offset + piece.data.size();
  }
  CHECK(kept == cap);
  CHECK(gaps == std::vector<std::pair<std::uint64_t, std::uint64_t>>{{cap / 2, total - cap / 2}});
}

TEST_CASE(
    "one piece does not run from the head into the ring when bytes between them were dropped") {
  spooled s(10'000);
  const auto head = s.read(2000, 1000, 10'000);
  CHECK(head.data.size() == 48);
  check_bytes(head);
  const auto tail = s.read(2048, 1000, 10'000);
  CHECK(tail.offset == 10'000 - 2048);
  check_bytes(tail);
}

TEST_CASE("a spool that a full disk has cut is read to its end and nothing is invented") {
  const std::uint64_t kept = GENERATE(0, 1, 2047, 2048, 2049, 4095);
  const std::uint64_t total = GENERATE(4096, 4097, 100'001);
  spooled s(kept);
  std::uint64_t at = 0;
  while (true) {
    const auto piece = s.read(at, 700, total);
    REQUIRE(piece.offset == at);
    if (piece.data.empty()) break;
    check_bytes(piece);
    at += piece.data.size();
  }
  CHECK(at == kept);
  CHECK(s.read(kept + 1, 700, total).data.empty());
  CHECK(s.read(total - 1, 700, total).data.empty());
}

TEST_CASE("a spool that was cut after it had filled is its first half, whatever its total") {
  spooled s(9999);
  std::filesystem::resize_file(s.dir.path() / "c.out", cap / 2);
  for (const std::optional<std::uint64_t> total : {std::optional<std::uint64_t>(10'500), {}}) {
    const auto head = s.read(0, cap, total);
    CHECK(head.offset == 0);
    CHECK(head.data.size() == cap / 2);
    check_bytes(head);
    const auto rest = s.read(cap / 2, cap, total);
    CHECK(rest.offset == cap / 2);
    CHECK(rest.data.empty());
  }
}

TEST_CASE("a full spool without a dropped byte is contiguous") {
  spooled s(cap);
  const auto all = s.read(0, cap, cap);
  CHECK(all.data.size() == cap);
  check_bytes(all);
}

TEST_CASE("of a running command only what stands before the ring is read") {
  CHECK(spooled(1000).read(0, 5000, std::nullopt).data.size() == 1000);
  CHECK(spooled(3000).read(0, 5000, std::nullopt).data.size() == cap / 2);
  CHECK(spooled(3000).read(2048, 5000, std::nullopt).data.empty());
}

TEST_CASE("a command id has one pair of spools until it is forgotten") {
  spooled s(10);
  CHECK(s.spool.create("c").error().code == errc::already_exists);
  s.spool.forget("c");
  CHECK(s.spool.read("c", stream::out, cap, 0, 1, 10).error().code == errc::not_found);
  CHECK(s.spool.create("c"));
}

TEST_CASE("ready files become spools, also when they run out") {
  const auto dir = *sys::temp_dir::make("dsec-spool-test");
  container::spool_dir spool(dir.path());
  REQUIRE(spool.prepare());
  for (const auto* id : {"a", "b", "c", "d"}) {
    const auto files = spool.create(id);
    REQUIRE(files);
    REQUIRE(::write(files->second.get(), id, 1) == 1);
  }
  REQUIRE(spool.prepare());
  CHECK(spool.create("a").error().code == errc::already_exists);
  for (const auto* id : {"a", "b", "c", "d"}) {
    CHECK(spool.read(id, stream::err, cap, 0, 10, 1)->data == id);
    CHECK(spool.read(id, stream::out, cap, 0, 10, 0)->data.empty());
  }
}

TEST_CASE("no more spools are made ready than were used") {
  const auto dir = *sys::temp_dir::make("dsec-spool-test");
  container::spool_dir spool(dir.path());
  for (const auto* id : {"a", "b", "c"}) {
    REQUIRE(spool.prepare());
    REQUIRE(spool.create(id));
  }
  REQUIRE(spool.prepare());
  std::size_t ready = 0;
  for (const auto& entry : std::filesystem::directory_iterator(dir.path()))
    ready += entry.path().extension() == ".ready" ? 1 : 0;
  CHECK(ready == container::spool_dir::ready_at_first);
}

TEST_CASE("spool caps are even and at least a page") {
  CHECK(container::valid_spool_cap(0) == 4096);
  CHECK(container::valid_spool_cap(5001) == 5002);
  CHECK(container::valid_spool_cap(1ULL << 63U) == 1ULL << 40U);
}

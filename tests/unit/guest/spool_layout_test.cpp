#include <catch2/catch.hpp>
#include <string>

#include "guest/spool.hpp"

using dsec::guest::spool_layout;

namespace {

/// What a spool file holds after `total` bytes came, byte p of the stream being p % 251.
std::string written(spool_layout layout, std::uint64_t total) {
  std::string file(layout.cap, '?');
  for (std::uint64_t p = 0; p < total; ++p)
    file[layout.file_offset(p)] = static_cast<char>(p % 251);
  return file;
}

}  // namespace

TEST_CASE("a spool holds everything up to its cap in order") {
  const spool_layout layout{64};
  CHECK(layout.dropped_from() == layout.dropped_to(0));
  CHECK(layout.dropped_from() == layout.dropped_to(64));
  for (std::uint64_t p = 0; p < 64; ++p) CHECK(layout.file_offset(p) == p);
}

TEST_CASE("beyond its cap a spool keeps the first and the last half") {
  const spool_layout layout{64};
  for (const std::uint64_t total : {65U, 95U, 96U, 97U, 1000U, 100'000U}) {
    const std::string file = written(layout, total);
    CHECK(layout.dropped_from() == 32);
    CHECK(layout.dropped_to(total) == total - 32);
    for (std::uint64_t p = 0; p < 32; ++p)
      CHECK(file[layout.file_offset(p)] == static_cast<char>(p % 251));
    for (std::uint64_t p = total - 32; p < total; ++p) {
      CHECK(file[layout.file_offset(p)] == static_cast<char>(p % 251));
    }
  }
}

TEST_CASE("contiguous pieces end at the half and at the end of the ring") {
  const spool_layout layout{64};
  CHECK(layout.contiguous(0) == 32);
  CHECK(layout.contiguous(31) == 1);
  CHECK(layout.contiguous(32) == 32);
  CHECK(layout.contiguous(63) == 1);
  CHECK(layout.contiguous(64) == 32);
  for (std::uint64_t p = 0; p < 300; ++p) {
    const auto n = layout.contiguous(p);
    REQUIRE(n > 0);
    CHECK(layout.file_offset(p + n - 1) == layout.file_offset(p) + n - 1);
    CHECK(layout.file_offset(p) + n <= 64);
  }
}

#include <capnp/any.h>

#include <catch2/catch.hpp>

#include "unit/proto/messages.hpp"

using namespace dsec::proto;
using namespace dsec::proto::test;
using dsec::base::errc;

TEST_CASE("a message that points at the same list again and again runs out of traversal") {
  // 4,095 toolkits that are all one text of 1 MiB: 4 GiB to whoever copies them.
  constexpr std::uint32_t copies = 4095;
  constexpr std::uint32_t text_bytes = 1U << 20U;
  capnp::MallocMessageBuilder builder;
  auto toolkits = builder.initRoot<Request>().getBody().initCreateSandbox().initToolkits(copies);
  toolkits.init(0, text_bytes);
  bytes message = bytes_of(builder);
  // The list of pointers and the text follow each other at the end: aim every pointer at the one
  // text. A list pointer holds its distance in words from its own end (encoding spec, "Lists").
  const std::size_t text_at = message.size() - (text_bytes / 8 + 1) * 8;
  const std::size_t list_at = text_at - copies * 8;
  for (std::size_t i = 0; i < copies; ++i) {
    const auto distance = static_cast<std::uint64_t>(copies - i - 1);
    const std::uint64_t pointer =
        1U | distance << 2U | 2ULL << 32U | static_cast<std::uint64_t>(text_bytes + 1) << 35U;
    std::memcpy(message.data() + list_at + i * 8, &pointer, 8);
  }
  auto f = frame::from_bytes(message);
  REQUIRE(f);
  std::size_t read = 0;
  auto outcome = view<Request>(*f).read([&](Request::Reader r) {
    for (const auto toolkit : r.getBody().getCreateSandbox().getToolkits()) {
      CHECK(toolkit.size() == text_bytes);
      read += toolkit.size();
    }
  });
  REQUIRE_FALSE(outcome);
  CHECK(outcome.error().code == errc::protocol);
  CHECK(read > 0);
  CHECK(read <= traversal_limit_words(message.size() / 8) * 8);
}

TEST_CASE("nesting deeper than the limit is refused") {
  // Structs of one pointer each, one inside the other.
  const auto nested = [](int depth) {
    std::vector<std::uint64_t> words(static_cast<std::size_t>(depth), struct_pointer(0, 0, 1));
    words.push_back(0);
    return message(words);
  };
  const auto descend = [](const bytes& message) {
    auto f = frame::from_bytes(message);
    REQUIRE(f);
    return view<capnp::AnyPointer>(*f).read([](capnp::AnyPointer::Reader root) {
      int levels = 0;
      for (auto at = root; !at.isNull(); ++levels) {
        at = at.getAs<capnp::AnyStruct>().getPointerSection()[0];
      }
      return levels;
    });
  };
  CHECK(descend(nested(nesting_limit - 1)).value() == nesting_limit - 1);
  auto too_deep = descend(nested(nesting_limit + 10));
  REQUIRE_FALSE(too_deep);
  CHECK(too_deep.error().code == errc::protocol);
}

TEST_CASE("a list of nothing that claims many elements is cheap and refused") {
  const auto claimed = GENERATE(std::uint64_t{1'000'000'000}, std::uint64_t{1'000'000});
  // Void elements need no bytes: without a charge per element this would loop for ever.
  capnp::MallocMessageBuilder builder;
  builder.initRoot<Request>().getBody().initCreateSandbox().initToolkits(1);
  bytes message = bytes_of(builder);
  // The last word is the list's only element; the list pointer to it is the one that says
  // "pointers, 1 element".
  const std::uint64_t one_pointer = 6ULL << 32U | 1ULL << 35U;
  std::size_t found = 0;
  for (std::size_t at = 8; at + 8 <= message.size(); at += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, message.data() + at, 8);
    if (word >> 32U != one_pointer >> 32U || (word & 3U) != 1) continue;
    const std::uint64_t voids = (word & 0xFFFFFFFFU) | claimed << 35U;
    std::memcpy(message.data() + at, &voids, 8);
    ++found;
  }
  REQUIRE(found == 1);
  auto f = frame::from_bytes(message);
  REQUIRE(f);
  auto size = view<Request>(*f).read(
      [](Request::Reader r) { return r.getBody().getCreateSandbox().getToolkits().size(); });
  REQUIRE_FALSE(size);
  CHECK(size.error().code == errc::protocol);
}

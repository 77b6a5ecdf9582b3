#include "proto/frame.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <span>
#include <string>

#include "unit/proto/messages.hpp"

using namespace dsec::proto;
using namespace dsec::proto::test;
using dsec::base::errc;

namespace {

errc refusal(const bytes& message) {
  auto f = frame::from_bytes(message);
  return f ? errc::ok : f.error().code;
}

bytes ping(std::uint64_t id) {
  capnp::MallocMessageBuilder builder;
  auto request = builder.initRoot<Request>();
  request.setId(id);
  request.getBody().setPing();
  return bytes_of(builder);
}

frame accepted(const bytes& message) {
  auto f = frame::from_bytes(message);
  REQUIRE(f);
  return *f;
}

}  // namespace

TEST_CASE("a message survives the wire") {
  auto id = view<Request>(accepted(ping(42))).read([](Request::Reader r) { return r.getId(); });
  REQUIRE(id);
  CHECK(*id == 42);
}

TEST_CASE("an empty frame has no bytes") {
  const frame none;
  CHECK(none.empty());
  CHECK(none.bytes().empty());
  CHECK(none.words().size() == 0);
}

TEST_CASE("copies of a frame share their words") {
  const frame one = accepted(ping(1));
  const frame two = one;
  CHECK(one.bytes().data() == two.bytes().data());
}

TEST_CASE("a message over the limit is refused, one at the limit is not") {
  bytes message = words32({0, static_cast<std::uint32_t>(max_message_bytes / 8 - 1)});
  message.resize(max_message_bytes);
  CHECK(refusal(message) == errc::ok);
  message.resize(max_message_bytes + 8);
  CHECK(refusal(message) == errc::too_large);
}

TEST_CASE("a segment table must describe exactly the bytes there are") {
  CHECK(refusal({}) == errc::protocol);
  CHECK(refusal(words32({0})) == errc::protocol);              // half a table
  CHECK(refusal(words32({0, 0})) == errc::ok);                 // one empty segment
  CHECK(refusal(words32({0, 1})) == errc::protocol);           // a word short
  CHECK(refusal(words32({0, 0, 0, 0})) == errc::protocol);     // a word too many
  CHECK(refusal(words32({0, 0xFFFFFFFF})) == errc::protocol);  // sizes that would overflow 32 bits
  CHECK(refusal(words32({1, 0xFFFFFFFF, 0xFFFFFFFF, 0})) == errc::protocol);
  CHECK(refusal(words32({0xFFFFFFFF, 0})) ==
        errc::protocol);  // 2^32 segments: +1 must not wrap to none
  bytes odd = ping(1);
  odd.pop_back();
  CHECK(refusal(odd) == errc::protocol);
}

TEST_CASE("as many segments as the limit are read, one more is refused") {
  const auto with_segments = [](std::uint32_t count) {
    bytes out = words32({count - 1});
    out.resize((count / 2 + 1) * std::size_t{8});
    return out;
  };
  CHECK(refusal(with_segments(max_segments)) == errc::ok);
  CHECK(refusal(with_segments(max_segments + 1)) == errc::protocol);
}

TEST_CASE("a message of several segments is read across them") {
  capnp::MallocMessageBuilder builder(8, capnp::AllocationStrategy::FIXED_SIZE);
  auto write = builder.initRoot<Request>().getBody().initWriteFile();
  write.setPath("/a/rather/long/path/that/fills/the/first/segment/at/once");
  write.initData(1000).asBytes()[999] = 7;
  REQUIRE(builder.getSegmentsForOutput().size() > 1);
  auto last = view<Request>(accepted(bytes_of(builder))).read([](Request::Reader r) {
    return r.getBody().getWriteFile().getData()[999];
  });
  CHECK(last.value() == 7);
}

TEST_CASE("a message survives being packed") {
  const frame plain = accepted(ping(42));
  const auto packed = plain.packed();
  CHECK(packed.size() < plain.bytes().size());
  const auto back = frame::from_packed(std::as_bytes(std::span(packed)));
  REQUIRE(back);
  CHECK(std::ranges::equal(back->bytes(), plain.bytes()));
}

TEST_CASE("what is packed wrongly is a protocol error") {
  const auto packed = accepted(ping(42)).packed();
  for (std::size_t length = 0; length < packed.size(); ++length) {
    const auto cut = frame::from_packed(std::as_bytes(std::span(packed.data(), length)));
    CAPTURE(length);
    REQUIRE_FALSE(cut);
    CHECK(cut.error().code == errc::protocol);
  }
  const auto longer = packed + std::string(2, '\0');
  CHECK(frame::from_packed(std::as_bytes(std::span(longer))).error().code == errc::protocol);
}

TEST_CASE("a packed bomb is refused before it is unpacked") {
  // Two bytes stand for 256 words of zeros.
  std::string bomb;
  for (int i = 0; i < 1'000'000; ++i) bomb += {'\0', '\xff'};
  const auto refused = frame::from_packed(std::as_bytes(std::span(bomb)));
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::too_large);
}

TEST_CASE("pointers out of the message are an error value, not an exception") {
  for (const auto& words : std::vector<std::vector<std::uint64_t>>{
           {struct_pointer(1000, 1, 1)},  // beyond the segment
           {struct_pointer(-5, 1, 1)},    // before it
           {0x0000000700000002},          // far pointer into a segment that does not exist
           {0x000000020000000A, 0},       // double-far landing pad that is none
           {0xFFFFFFFFFFFFFFFF}}) {       // a capability
    auto id =
        view<Request>(accepted(message(words))).read([](Request::Reader r) { return r.getId(); });
    REQUIRE_FALSE(id);
    CHECK(id.error().code == errc::protocol);
  }
}

TEST_CASE("an error returned by the reader comes through as it is") {
  auto outcome =
      view<Request>(accepted(ping(1))).read([](Request::Reader) -> dsec::base::result<int> {
        return dsec::base::fail(errc::unsupported, "not today");
      });
  REQUIRE_FALSE(outcome);
  CHECK(outcome.error().code == errc::unsupported);
}

TEST_CASE("a frame read as void") {
  bool ran = false;
  CHECK(view<Request>(accepted(ping(1))).read([&](Request::Reader) { ran = true; }));
  CHECK(ran);
}

TEST_CASE("what goes with a frame lives until nobody holds the frame") {
  auto companion = std::make_shared<int>(1);
  const std::weak_ptr<int> alive = companion;
  capnp::MallocMessageBuilder builder;
  builder.initRoot<Request>().setId(5);
  auto f = frame::from_builder(builder).with(std::move(companion));
  {
    const frame copy = f;
    f = {};
    CHECK_FALSE(alive.expired());
    CHECK(view<Request>(copy).read([](Request::Reader r) { return r.getId(); }) == 5);
  }
  CHECK(alive.expired());
}

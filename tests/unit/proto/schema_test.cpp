#include <capnp/dynamic.h>
#include <capnp/schema.h>

#include <array>
#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "proto/json.hpp"
#include "unit/proto/messages.hpp"

using namespace dsec::proto;
using namespace dsec::proto::test;

namespace {

/// Calls visit with every struct schema reachable from `root`, groups and list elements included.
void walk(capnp::StructSchema root, std::set<std::uint64_t>& seen,
          const std::function<void(capnp::StructSchema)>& visit);

void walk_type(capnp::Type type, std::set<std::uint64_t>& seen,
               const std::function<void(capnp::StructSchema)>& visit) {
  while (type.isList()) type = type.asList().getElementType();
  if (type.isStruct()) walk(type.asStruct(), seen, visit);
}

void walk(capnp::StructSchema root, std::set<std::uint64_t>& seen,
          const std::function<void(capnp::StructSchema)>& visit) {
  if (!seen.insert(root.getProto().getId()).second) return;
  visit(root);
  for (const auto field : root.getFields()) walk_type(field.getType(), seen, visit);
}

void walk_protocol(const std::function<void(capnp::StructSchema)>& visit) {
  std::set<std::uint64_t> seen;
  walk(capnp::Schema::from<Request>(), seen, visit);
  walk(capnp::Schema::from<Reply>(), seen, visit);
}

}  // namespace

TEST_CASE("the first member of every union is unset, a Void") {
  int unions = 0;
  walk_protocol([&](capnp::StructSchema s) {
    const auto members = s.getUnionFields();
    if (members.size() == 0) return;
    ++unions;
    CAPTURE(s.getProto().getDisplayName().cStr());
    for (const auto field : members) {
      if (field.getProto().getDiscriminantValue() != 0) continue;
      CHECK(std::string(field.getProto().getName().cStr()) == "unset");
      CHECK(field.getType().isVoid());
    }
  });
  CHECK(unions == 3);  // the bodies of Request and Reply, the source of a stream
}

TEST_CASE("every enum's first value is one that means nothing was said") {
  int enums = 0;
  walk_protocol([&](capnp::StructSchema s) {
    for (const auto field : s.getFields()) {
      if (!field.getType().isEnum()) continue;
      ++enums;
      const std::string first =
          field.getType().asEnum().getEnumerants()[0].getProto().getName().cStr();
      CAPTURE(first);
      CHECK((first == "unknown" || first == "none"));
    }
  });
  CHECK(enums > 0);
}

TEST_CASE("the protocol holds no capabilities, floats or untyped pointers") {
  walk_protocol([](capnp::StructSchema s) {
    for (const auto field : s.getFields()) {
      CAPTURE(s.getProto().getDisplayName().cStr(), field.getProto().getName().cStr());
      auto type = field.getType();
      while (type.isList()) type = type.asList().getElementType();
      CHECK_FALSE(type.isInterface());
      CHECK_FALSE(type.isAnyPointer());
      CHECK_FALSE(type.isFloat32());
      CHECK_FALSE(type.isFloat64());
    }
  });
}

TEST_CASE("every Data is a string in base64 as JSON") {
  int fields = 0;
  walk_protocol([&](capnp::StructSchema s) {
    for (const auto field : s.getFields()) {
      const std::string name = field.getProto().getName().cStr();
      CAPTURE(s.getProto().getDisplayName().cStr(), name);
      auto type = field.getType();
      CHECK_FALSE((type.isList() && type.asList().getElementType().isData()));
      if (!type.isData()) continue;
      ++fields;
      constexpr std::array<kj::byte, 3> bytes{0xff, 0x00, 0xfe};
      capnp::MallocMessageBuilder message;
      message.initRoot<capnp::DynamicStruct>(s).set(
          field, capnp::Data::Reader(bytes.data(), bytes.size()));
      const auto text = to_json(s, frame::from_builder(message));
      REQUIRE(text);
      CHECK_THAT(*text, Catch::Contains("\"" + name + "\":\"/wD+\""));
    }
  });
  CHECK(fields > 0);
}

TEST_CASE("a request that sets no member says so") {
  capnp::MallocMessageBuilder builder;
  builder.initRoot<Request>().setId(1);
  auto which = view<Request>(*frame::from_bytes(bytes_of(builder))).read([](Request::Reader r) {
    return r.getBody().which();
  });
  CHECK(which.value() == Request::Body::UNSET);
}

TEST_CASE("a member of a newer protocol is seen as one we do not know") {
  capnp::MallocMessageBuilder builder;
  auto request = builder.initRoot<Request>();
  request.setId(1);
  request.getBody().setPing();
  bytes message = bytes_of(builder);
  // The union's tag is the only 16-bit word that equals PING's number.
  std::size_t found = 0;
  for (std::size_t at = 16; at + 2 <= message.size(); at += 2) {
    std::uint16_t word = 0;
    std::memcpy(&word, message.data() + at, 2);
    if (word != Request::Body::PING) continue;
    word = 999;
    std::memcpy(message.data() + at, &word, 2);
    ++found;
  }
  REQUIRE(found == 1);
  auto which = view<Request>(*frame::from_bytes(message)).read([](Request::Reader r) {
    return static_cast<int>(r.getBody().which());
  });
  // Cap'n Proto hands over the raw number: whoever switches over it must have a default.
  CHECK(which.value() == 999);
}

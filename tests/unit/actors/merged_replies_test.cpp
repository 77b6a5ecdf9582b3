// Lists of several workers as one.
#include "actors/merged_replies.hpp"

#include <capnp/message.h>

#include <catch2/catch.hpp>

#include "node_fixture.hpp"
#include "proto/client.capnp.h"

using dsec::actors::edge_answer;
using dsec::actors::merged_images;
using dsec::actors::merged_sandboxes;
using dsec::test::decode;
namespace proto = dsec::proto;

namespace {

edge_answer with_sandbox(const std::string& edge, const std::string& id, std::uint64_t created) {
  capnp::MallocMessageBuilder m;
  auto s = m.initRoot<proto::Reply>().initBody().initSandboxes(1)[0];
  s.setSandboxId(id);
  s.setCreatedUnixMs(created);
  return {edge, proto::frame::from_builder(m)};
}

edge_answer with_image(const std::string& edge) {
  capnp::MallocMessageBuilder m;
  auto i = m.initRoot<proto::Reply>().initBody().initImages(1)[0];
  i.setKind("base");
  i.setName("debian");
  i.setTag("12");
  return {edge, proto::frame::from_builder(m)};
}

edge_answer failed(const std::string& edge) {
  capnp::MallocMessageBuilder m;
  m.initRoot<proto::Reply>().initBody().initError().setCode("io");
  return {edge, proto::frame::from_builder(m)};
}

using strings = std::vector<std::string>;

}  // namespace

TEST_CASE("a list merged of merged ones says what one merged at once does") {
  const auto some = merged_sandboxes(
      1, {with_sandbox("w1", "w1-a", 1), with_sandbox("w2", "w2-b", 3), failed("w3")}, {"w4"});
  const auto all = decode(merged_sandboxes(1, {{"", some}, with_sandbox("w5", "w5-c", 2)}, {"w6"}));
  CHECK(all.ids == strings{"w2-b", "w5-c", "w1-a"});
  CHECK(all.unreachable == strings{"w3", "w4", "w6"});
}

TEST_CASE("images of merged lists keep the names of all who have them") {
  const auto some = merged_images(1, {with_image("w3"), with_image("w1")}, {});
  const auto all = decode(merged_images(1, {{"", some}, with_image("w2"), failed("w4")}, {}));
  CHECK(all.ids == strings{"debian:12"});
  CHECK(all.edges == strings{"w1", "w2", "w3"});
  CHECK(all.unreachable == strings{"w4"});
}

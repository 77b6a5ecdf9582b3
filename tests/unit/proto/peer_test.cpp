#include "proto/peer.hpp"

#include <capnp/message.h>

#include <catch2/catch.hpp>
#include <string>

#include "base/secret.hpp"
#include "proto/client.capnp.h"

using namespace dsec::proto;
using dsec::base::errc;

namespace {

peer_hello good_hello() {
  peer_hello h;
  h.edge = "w1";
  h.node_id = "abcdef";
  h.nonce = peer_nonce();
  h.program = "0.1.0";
  return h;
}

dsec::base::result<peer_hello> through_the_wire(const peer_hello& h) {
  const auto sent = hello_frame(h);
  const auto got = frame::from_bytes(sent.bytes(), max_peer_hello_bytes);
  REQUIRE(got);
  return view<PeerMessage>(*got).read([](PeerMessage::Reader m) { return read_hello(m); });
}

}  // namespace

TEST_CASE("hello arrives as it was said, and is small") {
  const auto h = good_hello();
  const auto got = through_the_wire(h);
  REQUIRE(got);
  CHECK(got->edge == h.edge);
  CHECK(got->node_id == h.node_id);
  CHECK(got->nonce == h.nonce);
  CHECK(got->program == h.program);
  CHECK(hello_frame(h).bytes().size() < max_peer_hello_bytes / 4);
}

TEST_CASE("a hello with a wrong part is refused, typed") {
  const auto code_with = [](auto change) {
    auto h = good_hello();
    change(h);
    const auto got = through_the_wire(h);
    return got ? errc::ok : got.error().code;
  };
  CHECK(code_with([](auto&) {}) == errc::ok);
  CHECK(code_with([](auto& h) { h.version = 2; }) == errc::unsupported);
  CHECK(code_with([](auto& h) { h.edge = "W1"; }) == errc::invalid_argument);
  CHECK(code_with([](auto& h) { h.edge = std::string(41, 'a'); }) == errc::invalid_argument);
  CHECK(code_with([](auto& h) { h.edge = "../x"; }) == errc::invalid_argument);
  CHECK(code_with([](auto& h) { h.node_id = ""; }) == errc::protocol);
  CHECK(code_with([](auto& h) { h.node_id = "a b"; }) == errc::protocol);
  CHECK(code_with([](auto& h) { h.nonce = "short"; }) == errc::protocol);
  CHECK(code_with([](auto& h) { h.nonce = ""; }) == errc::protocol);
  capnp::MallocMessageBuilder builder;
  builder.initRoot<PeerMessage>().initBody().setWelcome();
  CHECK(read_hello(builder.getRoot<PeerMessage>().asReader()).error().code == errc::protocol);
}

TEST_CASE("a proof depends on the secret, the side and everything that was said") {
  const auto h = good_hello();
  const auto nonce = peer_nonce();
  const std::string secret(32, 's');
  const auto proof = peer_proof(secret, peer_side::worker, h, nonce);
  CHECK(dsec::base::same_secret(proof, peer_proof(secret, peer_side::worker, h, nonce)));
  CHECK_FALSE(dsec::base::same_secret(proof, peer_proof(secret, peer_side::coordinator, h, nonce)));
  CHECK_FALSE(dsec::base::same_secret(
      proof, peer_proof(std::string(32, 't'), peer_side::worker, h, nonce)));
  CHECK_FALSE(
      dsec::base::same_secret(proof, peer_proof(secret, peer_side::worker, h, peer_nonce())));
  for (const auto part :
       {&peer_hello::edge, &peer_hello::node_id, &peer_hello::nonce, &peer_hello::program}) {
    auto other = h;
    other.*part += "x";
    CHECK_FALSE(
        dsec::base::same_secret(proof, peer_proof(secret, peer_side::worker, other, nonce)));
  }
  // Where one part ends and the next begins counts.
  auto a = h, b = h;
  a.edge = "ab", a.node_id = "c";
  b.edge = "a", b.node_id = "bc";
  CHECK(peer_proof(secret, peer_side::worker, a, nonce) !=
        peer_proof(secret, peer_side::worker, b, nonce));
  CHECK_FALSE(dsec::base::same_secret("", ""));
  CHECK_FALSE(dsec::base::same_secret(proof, proof.substr(1)));
}

TEST_CASE("a reply gets another id and is otherwise the same") {
  capnp::MallocMessageBuilder builder;
  auto reply = builder.initRoot<Reply>();
  reply.setId(7);
  auto list = reply.initBody().initSandboxes(500);
  for (auto s : list) s.setSandboxId(std::string(60, 'a'));  // more than one segment
  const auto sent = frame::from_builder(builder);
  const auto got = frame::from_reply(sent.bytes(), 0xfedcba9876543210U);
  REQUIRE(got);
  REQUIRE(got->bytes().size() == sent.bytes().size());
  const auto ok = view<Reply>(*got).read([&](Reply::Reader r) {
    CHECK(r.getId() == 0xfedcba9876543210U);
    CHECK(r.getBody().getSandboxes().size() == 500);
    CHECK(r.getBody().getSandboxes()[499].getSandboxId() == std::string(60, 'a'));
  });
  CHECK(ok);
  // Nothing else has changed.
  CHECK(frame::from_reply(got->bytes(), 7)->bytes().size() == sent.bytes().size());
  const auto back = *frame::from_reply(got->bytes(), 7);
  CHECK(std::equal(back.bytes().begin(), back.bytes().end(), sent.bytes().begin()));
}

TEST_CASE("what is no reply gets no id") {
  CHECK_FALSE(frame::from_reply({}, 1));
  const std::string empty(8, '\0');  // one segment of nothing
  CHECK_FALSE(frame::from_reply(std::as_bytes(std::span(empty)), 1));
  const std::string noise(64, '\x7f');
  CHECK_FALSE(frame::from_reply(std::as_bytes(std::span(noise)), 1));
  // A root pointer that leads out of its segment.
  capnp::MallocMessageBuilder builder;
  builder.initRoot<Reply>().setId(7);
  const auto sent = frame::from_builder(builder);
  std::vector<std::byte> bytes(sent.bytes().begin(), sent.bytes().end());
  bytes[9] = std::byte{0x7f};
  CHECK_FALSE(frame::from_reply(bytes, 1));
  bytes[8] = std::byte{0x02};  // far
  CHECK_FALSE(frame::from_reply(bytes, 1));
}

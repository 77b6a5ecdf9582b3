#include <catch2/catch.hpp>
#include <cstring>

#include "node_fixture.hpp"
#include "proto/limits.hpp"

using namespace dsec::test;
using namespace std::chrono_literals;
namespace proto = dsec::proto;

namespace {

proto::frame request(const std::function<void(proto::Request::Builder)>& f) {
  capnp::MallocMessageBuilder message;
  f(message.initRoot<proto::Request>());
  return proto::frame::from_builder(message);
}

/// A connection that has not said hello.
struct stranger {
  explicit stranger(node_fixture& n)
      : node(n),
        handler(dsec::actors::open_connection(*n.system, n.slot->get(), 120s, "e0", session,
                                              {"alice", "x"})) {
    node.run();
  }
  void say(proto::frame f) {
    handler.message(std::move(f));
    node.run();
  }

  node_fixture& node;
  std::shared_ptr<recording_session> session = std::make_shared<recording_session>();
  dsec::net::session_handler handler;
};

}  // namespace

TEST_CASE("hello comes first, then ping goes all the way") {
  node_fixture node;
  client alice(node, "alice");
  CHECK(decode(alice.session->sent.at(0)).kind == "hello");
  CHECK(alice.call([](auto r) { r.getBody().setPing(); }).kind == "pong");
}

TEST_CASE("a connection that does not say hello is closed with a reason") {
  node_fixture node;
  stranger s(node);
  s.say(request([](auto r) {
    r.setId(7);
    r.getBody().setPing();
  }));
  REQUIRE(s.session->sent.size() == 1);
  CHECK(decode(s.session->sent[0]).code == "protocol");
  CHECK(s.session->closed.size() == 1);
}

TEST_CASE("another protocol version is unsupported") {
  node_fixture node;
  stranger s(node);
  s.say(request([](auto r) {
    r.setId(1);
    r.getBody().initHello().setProtocolVersion(99);
  }));
  CHECK(decode(s.session->sent.at(0)).code == "unsupported");
  CHECK_FALSE(s.session->closed.empty());
}

TEST_CASE("an unset or unknown request is refused, and the connection goes on") {
  node_fixture node;
  client alice(node, "alice");
  CHECK(alice.call([](auto) {}).code == "unsupported");
  CHECK(alice.call([](auto r) { r.getBody().setPing(); }).kind == "pong");
}

TEST_CASE("a request without an id closes the connection") {
  node_fixture node;
  client alice(node, "alice");
  alice.raw(request([](auto r) { r.getBody().setPing(); }));
  CHECK(alice.session->closed.size() == 1);
}

TEST_CASE("a damaged body is answered when its id can be read") {
  node_fixture node;
  client alice(node, "alice");
  auto good = request([](auto r) {
    r.setId(1000);
    auto s = r.getBody().initGetSandbox();
    s.setSandboxId("e0-aaaaaaaaaaaaaaaa");
  });
  std::vector<std::byte> bytes(good.bytes().begin(), good.bytes().end());
  // The last pointer (the text) now points far outside.
  for (std::size_t i = bytes.size(); i >= 8; i -= 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i - 8, 8);
    if ((word & 3U) == 1 && (word >> 32U) == ((20ULL << 3U) | 2U)) {
      word = 0x7ffffffdULL | (word & ~0xffffffffULL);
      std::memcpy(bytes.data() + i - 8, &word, 8);
      break;
    }
  }
  alice.raw(*proto::frame::from_bytes(bytes));
  const auto a = alice.got(1000);
  REQUIRE(a);
  CHECK(a->code == "protocol");
}

TEST_CASE("a frame that is no message is answered and the session left to close") {
  node_fixture node;
  stranger s(node);
  s.handler.malformed({dsec::base::errc::protocol, "message is shorter than its segment table", 0});
  node.run();
  CHECK(decode(s.session->sent.at(0)).code == "protocol");
}

TEST_CASE("one credit goes out for every answer, and no more") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto start = proto::max_in_flight;
  CHECK(alice.session->granted == start + 1);  // hello
  const auto id = node.running_sandbox(alice);
  CHECK(alice.session->granted == start + 2);
  const auto waiting = alice.ask(exec(id, "c1", [](auto e) { e.initArgv(1).set(0, "hold"); }));
  CHECK(alice.session->granted == start + 2);
  node.backend->finish(id, "c1");
  node.run();
  CHECK(alice.got(waiting));
  CHECK(alice.session->granted == start + 3);
}

TEST_CASE("a request id in flight cannot be used twice, an answered one can") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  const auto held = [&](auto r) {
    exec(id, "c1", [](auto e) { e.initArgv(1).set(0, "hold"); })(r);
    r.setId(500);
  };
  alice.raw(request(held));
  alice.raw(request(held));
  CHECK(alice.got(500)->code == "invalid_argument");
  const auto answers = alice.session->sent.size();
  node.backend->finish(id, "c1");
  node.run();
  CHECK(alice.session->sent.size() == answers + 1);
  alice.raw(request(held));
  CHECK(alice.session->sent.size() == answers + 2);
}

TEST_CASE("a request that nobody answers is answered when its deadline passes") {
  node_fixture node;
  client alice(node, "alice");
  node.copy->held = true;
  const auto id = alice.ask([](auto r) { r.getBody().setListImages(); }, 3000);
  node.advance(2900ms);
  CHECK_FALSE(alice.got(id));
  node.advance(200ms);
  CHECK(alice.got(id)->code == "deadline_exceeded");
  const auto answers = alice.session->sent.size();
  node.copy->held = false;
  node.run();
  CHECK(alice.session->sent.size() == answers);  // the late answer is dropped
}

TEST_CASE("images are listed") {
  node_fixture node;
  client alice(node, "alice");
  CHECK(alice.call([](auto r) { r.getBody().setListImages(); }).ids ==
        std::vector<std::string>{"debian:12"});
}

TEST_CASE("a sandbox of an unknown edge is not found, and what is no id is refused") {
  node_fixture node;
  client alice(node, "alice");
  CHECK(alice.call(get("e9-aaaaaaaaaaaaaaaa")).code == "not_found");
  CHECK(alice.call(get("Nonsense")).code == "invalid_argument");
  CHECK(alice.call(get("")).code == "invalid_argument");
}

TEST_CASE("answers due to a client that went are dropped") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  alice.ask(exec(id, "c1", [](auto e) { e.initArgv(1).set(0, "hold"); }));
  const auto answers = alice.session->sent.size();
  alice.disconnect();
  node.backend->finish(id, "c1");
  node.run();
  CHECK(alice.session->sent.size() == answers);
  CHECK_FALSE(alice.session->closed.empty());
}

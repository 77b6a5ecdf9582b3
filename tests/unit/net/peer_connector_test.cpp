#include "net/peer_connector.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <deque>
#include <mutex>

#include "proto/peer.hpp"
#include "support/eventually.hpp"
#include "unit/net/gateway_fixture.hpp"
#include "unit/net/link_end.hpp"
#include "unit/net/raw_client.hpp"

using namespace dsec::net;
using namespace dsec::net::test;
using dsec::base::errc;
namespace base = dsec::base;
namespace proto = dsec::proto;

namespace {

errc refusal_of(std::string_view text) {
  const auto a = parse_peer_address(text);
  return a ? errc::ok : a.error().code;
}

proto::frame message_of(std::size_t bytes) {
  capnp::MallocMessageBuilder m;
  m.initRoot<proto::PeerMessage>().initBody().initReply().initReply(static_cast<unsigned>(bytes));
  return proto::frame::from_builder(m);
}

}  // namespace

TEST_CASE("addresses of coordinators are checked") {
  CHECK(parse_peer_address("127.0.0.1:7070")->text() == "127.0.0.1:7070");
  CHECK(parse_peer_address("[::1]:80")->text() == "[::1]:80");
  CHECK(parse_peer_address("localhost:1")->is_loopback());
  for (const char* bad : {"", "7070", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:70700",
                          "127.0.0.1:7x", "::1:80", "[::1]", "coordinator:7070", ":7070"}) {
    INFO(bad);
    CHECK(refusal_of(bad) == errc::invalid_argument);
  }
  CHECK_FALSE(parse_peer_address("[2001:db8::1]:7070")->is_loopback());
}

TEST_CASE("without TLS no link leaves this host") {
  const auto connector = start({});
  for (const char* far : {"10.0.0.1:7070", "[2001:db8::1]:7070", "0.0.0.0:7070"}) {
    end ours;
    ours.dial(*connector, *parse_peer_address(far));
    REQUIRE(ours.eventually([&] { return ours.failures.size() == 1; }));
    CHECK(ours.failures[0].code == errc::unsupported);
    CHECK(ours.failures[0].message.find("peer.ca_file") != std::string::npos);
  }
}

TEST_CASE("a link carries messages both ways, small ones until both trust each other") {
  end theirs, ours;
  base::gateway_config config;
  config.port = 0;
  auto door = listener::start(
      config, {.gate = std::make_shared<dsec::auth::gate>(),
               .opened = {},
               .get = [](const http_get&) { return std::optional<http_answer>(); },
               .peer_opened = [&](auto s, const auto&) { return theirs.serve(std::move(s)); }});
  REQUIRE(door);
  const auto connector = start({});
  ours.dial(*connector, {"127.0.0.1", (*door)->port()});
  REQUIRE(ours.eventually([&] { return ours.session != nullptr; }));
  REQUIRE(theirs.eventually([&] { return theirs.session != nullptr; }));
  ours.session->send(message_of(100));
  theirs.session->send(message_of(200));
  CHECK(theirs.eventually([&] { return theirs.sizes.size() == 1; }));
  CHECK(ours.eventually([&] { return ours.sizes.size() == 1; }));
  SECTION("one that nobody trusts yet may send little") {
    ours.session->send(message_of(proto::max_peer_hello_bytes));
    CHECK(theirs.eventually([&] { return theirs.closed == 1; }));
    CHECK(ours.eventually([&] { return ours.closed == 1; }));
  }
  SECTION("one that is trusted may send more than a client's largest message") {
    theirs.session->trust();
    ours.session->send(message_of(proto::max_message_bytes));
    CHECK(theirs.eventually([&] { return theirs.sizes.size() == 2; }));
    // And no more than that.
    ours.session->send(message_of(proto::max_peer_message_bytes));
    CHECK(theirs.eventually([&] { return theirs.closed == 1; }));
  }
  SECTION("the end of one is the end of both") {
    theirs.session->close("enough");
    CHECK(ours.eventually([&] { return ours.closed == 1; }));
  }
  connector->stop();
  (*door)->stop();
}

TEST_CASE("a worker comes in where clients have taken all places") {
  end clients, theirs, ours;
  base::gateway_config config;
  config.port = 0;
  config.max_connections = 1;
  auto door = listener::start(
      config, {.gate = std::make_shared<dsec::auth::gate>(std::vector{
                   dsec::auth::known_key{"k-test", "tester", dsec::auth::hash_of("right-key")}}),
               .opened = [&](auto s, const auto&) { return clients.serve(std::move(s)); },
               .get = [](const http_get&) { return std::optional<http_answer>(); },
               .peer_opened = [&](auto s, const auto&) { return theirs.serve(std::move(s)); }});
  REQUIRE(door);
  raw_client first((*door)->port());
  REQUIRE(first.upgrade("right-key") == 101);
  REQUIRE(raw_client((*door)->port()).upgrade("right-key") == 503);
  const auto connector = start({});
  ours.dial(*connector, {"127.0.0.1", (*door)->port()});
  CHECK(ours.eventually([&] { return ours.session != nullptr; }));
  CHECK(ours.failures.empty());
  connector->stop();
  (*door)->stop();
}

TEST_CASE("who never proves to be a worker loses its place to those that come after it") {
  constexpr std::size_t others = 64;
  std::deque<end> theirs, ours(others + 1);
  std::mutex mutex;
  base::gateway_config config;
  config.port = 0;
  auto door =
      listener::start(config, {.gate = std::make_shared<dsec::auth::gate>(),
                               .opened = {},
                               .get = [](const http_get&) { return std::optional<http_answer>(); },
                               .peer_opened =
                                   [&](auto s, const auto&) {
                                     const std::lock_guard lock(mutex);
                                     return theirs.emplace_back().serve(std::move(s));
                                   }});
  REQUIRE(door);
  const auto connector = start({});
  const auto connect = [&](end& one) {
    one.dial(*connector, {"127.0.0.1", (*door)->port()});
    REQUIRE(one.eventually([&] { return one.session != nullptr; }));
  };
  /// Once the listener has it, too.
  const auto accepted = [&](std::size_t n) -> end& {
    end* found = nullptr;
    REQUIRE(dsec::test::eventually([&] {
      const std::lock_guard lock(mutex);
      found = theirs.size() > n ? &theirs[n] : nullptr;
      return found != nullptr;
    }));
    return *found;
  };
  connect(ours[0]);
  end& first = accepted(0);
  const bool proves = GENERATE(false, true);
  if (proves) {
    first.session->trust();
    // It takes more than others do: what trust() said has come about.
    ours[0].session->send(message_of(proto::max_message_bytes));
    REQUIRE(first.eventually([&] { return first.sizes.size() == 1; }));
  }
  for (std::size_t n = 1; n <= others; ++n) connect(ours[n]);
  accepted(others);
  if (proves) {
    ours[0].session->send(message_of(100));
    CHECK(first.eventually([&] { return first.sizes.size() == 2; }));
  } else {
    CHECK(ours[0].eventually([&] { return ours[0].closed == 1; }));
  }
  connector->stop();
  (*door)->stop();
}

TEST_CASE("who does not take links says so, and so does nobody at all") {
  gateway_fixture client_door;  // of --role=all
  end ours;
  const auto connector = start({});
  const auto port = client_door.port();
  ours.dial(*connector, {"127.0.0.1", port});
  REQUIRE(ours.eventually([&] { return ours.failures.size() == 1; }));
  CHECK(ours.failures[0].code == errc::not_found);
  CHECK(ours.failures[0].message.find("nothing at '/v1/peer'") != std::string::npos);
  client_door.door->stop();
  ours.dial(*connector, {"127.0.0.1", port});
  REQUIRE(ours.eventually([&] { return ours.failures.size() == 2; }));
  CHECK(ours.failures[1].code == errc::unavailable);
  CHECK(ours.failures[1].message.find("127.0.0.1:" + std::to_string(port)) != std::string::npos);
  CHECK(ours.session == nullptr);
  connector->stop();
  // After the end too whoever asks is told.
  ours.dial(*connector, {"127.0.0.1", port});
  CHECK(ours.eventually([&] { return ours.failures.size() == 3; }));
}

TEST_CASE("a connector that stops does not wait for tries that are under way") {
  // A listener whose queue takes the connection and that never answers the upgrade.
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  REQUIRE(::bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0);
  REQUIRE(::listen(fd, 1) == 0);
  REQUIRE(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  end ours;
  const auto connector = start({});
  ours.dial(*connector, {"127.0.0.1", ntohs(address.sin_port)});
  const auto began = std::chrono::steady_clock::now();
  connector->stop();
  CHECK(std::chrono::steady_clock::now() - began < std::chrono::seconds(5));
  CHECK(ours.eventually([&] { return ours.failures.size() == 1; }));
  ::close(fd);
}

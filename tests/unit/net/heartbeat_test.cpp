// Clients that say nothing, or little: which of them are given up, and when.
#include <catch2/catch.hpp>
#include <chrono>

#include "gateway_fixture.hpp"
#include "raw_client.hpp"

using namespace dsec::net::test;
using namespace std::chrono_literals;
using dsec::net::heartbeat;
using steady = std::chrono::steady_clock;

namespace {

constexpr heartbeat quick{100ms, 400ms, 1500ms};

bool closed(gateway_fixture& gateway, std::chrono::milliseconds within = patience) {
  return gateway.eventually([](const auto& all) { return !all.empty() && all[0].closed == 1; },
                            within);
}

}  // namespace

TEST_CASE("a silent client is pinged, and given up when it does not answer") {
  gateway_fixture gateway({}, quick);
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  gateway.session()->grant(1);
  const auto began = steady::now();
  const auto f = client.frame();
  REQUIRE(f);
  CHECK(f->op == ws_frame::ping);
  CHECK(closed(gateway));
  CHECK(steady::now() - began >= quick.silence);
}

TEST_CASE("a client that answers pings stays, however little it says") {
  gateway_fixture gateway({}, quick);
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  gateway.session()->grant(1);
  const auto until = steady::now() + 4 * quick.silence;
  while (steady::now() < until) {
    const auto f = client.frame();
    REQUIRE(f);
    REQUIRE(f->op == ws_frame::ping);
    client.send_frame(ws_frame::pong, f->payload);
  }
  CHECK(gateway.seen()[0].closed == 0);
  client.send_frame(ws_frame::binary, ping_request(1));
  CHECK(gateway.eventually([](const auto& all) { return all[0].messages.size() == 1; }));
}

TEST_CASE("bytes of a message that is on its way are a sign of life, but not for ever") {
  gateway_fixture gateway({}, quick);
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  gateway.session()->grant(1);
  const auto began = steady::now();
  client.send_frame_header(ws_frame::binary, 1000);
  // A pong would be in the middle of the message: this client cannot say more than this.
  while (!closed(gateway, 20ms) && steady::now() - began < 10s) client.send("x");
  CHECK(steady::now() - began >= quick.message);
  CHECK(closed(gateway));
}

TEST_CASE("a client whose requests all wait is pinged too, and stays") {
  gateway_fixture gateway({}, quick);
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  gateway.session();  // without credit: nothing of the client's is read
  const auto until = steady::now() + 3 * quick.silence;
  while (steady::now() < until) {
    const auto f = client.frame();
    REQUIRE(f);
    CHECK(f->op == ws_frame::ping);
  }
  CHECK(gateway.seen()[0].closed == 0);
}

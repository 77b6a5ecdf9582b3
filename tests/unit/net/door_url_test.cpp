#include "net/door_url.hpp"

#include <catch2/catch.hpp>

using dsec::net::door_url;

namespace {

std::string url(const std::string& bind, const std::string& certificate = {}) {
  dsec::base::gateway_config gateway;
  gateway.bind = bind;
  gateway.tls_cert = certificate;
  return door_url(gateway, 7070);
}

}  // namespace

TEST_CASE("the published address is one that can be connected to") {
  CHECK(url("127.0.0.1") == "ws://127.0.0.1:7070");
  CHECK(url("192.0.2.1", "c.pem") == "wss://192.0.2.1:7070");
  CHECK(url("2001:db8::1") == "ws://[2001:db8::1]:7070");
}

TEST_CASE("a gateway on every address is published as loopback's") {
  CHECK(url("0.0.0.0", "c.pem") == "wss://127.0.0.1:7070");
  CHECK(url("::") == "ws://[::1]:7070");
  CHECK(url("0:0:0:0:0:0:0:0") == "ws://[::1]:7070");
}

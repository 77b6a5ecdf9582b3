#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "unit/net/gateway_fixture.hpp"
#include "unit/net/raw_client.hpp"

using namespace dsec::net::test;
using dsec::net::listener;

namespace {

std::string error_code_of(const http_response& r) {
  return nlohmann::json::parse(r.body)["error"]["code"].get<std::string>();
}

std::string host_line(std::uint16_t port) {
  return "Host: 127.0.0.1:" + std::to_string(port) + "\r\n";
}

}  // namespace

TEST_CASE("healthz answers, again and again on one connection") {
  gateway_fixture gateway;
  raw_client client(gateway.port());
  for (int i = 0; i < 3; ++i) {
    const auto answer = client.get("/healthz?x=1");
    CHECK(answer.status == 200);
    CHECK(answer.body == "{\"ok\":true}\n");
    CHECK(answer.headers.at("content-type") == "application/json");
  }
}

TEST_CASE("two pipelined requests get two answers") {
  gateway_fixture gateway;
  raw_client client(gateway.port());
  const std::string one = "GET /healthz HTTP/1.1\r\n" + host_line(gateway.port()) + "\r\n";
  client.send(one + one);
  CHECK(client.response().value().status == 200);
  CHECK(client.response().value().status == 200);
}

TEST_CASE("an unknown path is a typed 404") {
  gateway_fixture gateway;
  const auto answer = raw_client(gateway.port()).get("/nothing");
  CHECK(answer.status == 404);
  CHECK(error_code_of(answer) == "not_found");
}

TEST_CASE("a client of this machine is trusted without a key") {
  gateway_fixture gateway;
  CHECK(raw_client(gateway.port()).get("/secret").body == "told");
}

TEST_CASE("whoever is not trusted is told to send a key") {
  const auto answer = dsec::net::needs_key();
  CHECK(answer.status == 401);
  CHECK(nlohmann::json::parse(answer.body)["error"]["code"] == "unauthenticated");
}

TEST_CASE("only GET is allowed") {
  gateway_fixture gateway;
  raw_client client(gateway.port());
  client.send("POST /healthz HTTP/1.1\r\n" + host_line(gateway.port()) +
              "Content-Length: 2\r\n\r\nhi");
  const auto answer = client.response().value();
  CHECK(answer.status == 405);
  CHECK(answer.headers.at("allow") == "GET");
  CHECK(client.closed_by_peer());
}

TEST_CASE("a POST with a key gives tickets, as many as may be unused") {
  gateway_fixture gateway;
  const auto post = [&](raw_client& client, const std::string& lines) {
    client.send("POST /v1/ticket HTTP/1.1\r\n" + host_line(gateway.port()) + lines +
                "Content-Length: 0\r\n\r\n");
    return client.response().value();
  };
  raw_client stranger(gateway.port()), wrong(gateway.port()), other(gateway.port());
  CHECK(post(stranger, "").status == 401);
  CHECK(post(wrong, "Authorization: Bearer wrong\r\n").status == 401);
  CHECK(post(other, "Origin: http://evil.example\r\n").status == 403);
  CHECK(raw_client(gateway.port()).get("/v1/ticket").status == 405);

  raw_client client(gateway.port());
  const std::string key = "Authorization: Bearer right-key\r\n";
  const auto answer = post(client, key);
  CHECK(answer.status == 200);
  CHECK(answer.headers.at("cache-control") == "no-store");
  const auto body = nlohmann::json::parse(answer.body);
  CHECK(body["expiresInSeconds"] == 30);
  CHECK(gateway.gate->by_ticket(body["ticket"].get<std::string>())->principal == "tester");
  for (std::size_t i = 0; i < dsec::auth::ticket_book::most_of_a_key; ++i)
    REQUIRE(post(client, key).status == 200);
  const auto refused = post(client, key);
  CHECK(refused.status == 503);
  CHECK(error_code_of(refused) == "capacity");
}

TEST_CASE("a Host that is not ours is refused") {
  gateway_fixture gateway;
  for (const std::string& host :
       {"evil.example:" + std::to_string(gateway.port()), std::string("127.0.0.1:1")}) {
    raw_client client(gateway.port());
    client.send("GET /healthz HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
    const auto answer = client.response().value();
    CHECK(answer.status == 403);
    CHECK(error_code_of(answer) == "permission_denied");
  }
}

TEST_CASE("no Host and two Hosts are refused") {
  gateway_fixture gateway;
  for (const std::string& lines :
       {std::string(), host_line(gateway.port()) + host_line(gateway.port())}) {
    raw_client client(gateway.port());
    client.send("GET /healthz HTTP/1.1\r\n" + lines + "\r\n");
    CHECK(client.response().value().status == 400);
  }
}

TEST_CASE("a page of another origin is refused, one of our own is not") {
  gateway_fixture gateway;
  CHECK(raw_client(gateway.port()).get("/healthz", "Origin: http://evil.example\r\n").status ==
        403);
  CHECK(raw_client(gateway.port()).get("/healthz", "Origin: null\r\n").status == 403);
  const auto own = "Origin: http://127.0.0.1:" + std::to_string(gateway.port()) + "\r\n";
  CHECK(raw_client(gateway.port()).get("/healthz", own).status == 200);
}

TEST_CASE("a header or body that is too large is answered, not read") {
  gateway_fixture gateway;
  const auto long_header =
      raw_client(gateway.port()).get("/healthz", "X: " + std::string(9000, 'x') + "\r\n");
  CHECK(long_header.status == 431);
  CHECK(error_code_of(long_header) == "too_large");

  raw_client client(gateway.port());
  client.send("POST /healthz HTTP/1.1\r\n" + host_line(gateway.port()) +
              "Content-Length: 70000\r\n\r\n");
  CHECK(client.response().value().status == 413);
}

TEST_CASE("what is not HTTP gets a 400") {
  gateway_fixture gateway;
  raw_client client(gateway.port());
  client.send("\x16\x03\x01\x02 this is no request\r\n\r\n");
  const auto answer = client.response().value();
  CHECK(answer.status == 400);
  CHECK(error_code_of(answer) == "invalid_argument");
  CHECK(client.closed_by_peer());
}

TEST_CASE("connections over the limit are told so, and room is made when one leaves") {
  dsec::base::gateway_config config;
  config.max_connections = 2;
  gateway_fixture gateway(config);
  auto first = std::make_unique<raw_client>(gateway.port());
  auto second = std::make_unique<raw_client>(gateway.port());
  CHECK(first->get("/healthz").status == 200);
  CHECK(second->upgrade("right-key") == 101);

  const auto answer = raw_client(gateway.port()).get("/healthz");
  CHECK(answer.status == 503);
  CHECK(nlohmann::json::parse(answer.body)["error"]["retryable"] == true);

  gateway.session()->close("make room");
  second->close_frame();
  second.reset();
  REQUIRE(gateway.eventually([](const auto& all) { return all[0].closed == 1; }));
  CHECK(raw_client(gateway.port()).get("/healthz").status == 200);
}

TEST_CASE("one API key has half of all connections at most") {
  dsec::base::gateway_config config;
  config.max_connections = 4;
  gateway_fixture gateway(config);
  gateway.gate->set_keys({{"k-test", "tester", dsec::auth::hash_of("right-key")},
                          {"k-other", "other", dsec::auth::hash_of("other-key")}});
  auto first = std::make_unique<raw_client>(gateway.port());
  raw_client second(gateway.port());
  CHECK(first->upgrade("right-key") == 101);
  CHECK(second.upgrade("right-key") == 101);
  CHECK(raw_client(gateway.port()).upgrade("right-key") == 503);
  raw_client other(gateway.port());
  CHECK(other.upgrade("other-key") == 101);

  gateway.session()->close("make room");
  first->close_frame();
  first.reset();
  REQUIRE(gateway.eventually([](const auto& all) { return all[0].closed == 1; }));
  CHECK(raw_client(gateway.port()).upgrade("right-key") == 101);
}

TEST_CASE("a port in use is an error that names the address") {
  gateway_fixture gateway;
  dsec::base::gateway_config config;
  config.port = gateway.port();
  const auto second = listener::start(config, {});
  REQUIRE_FALSE(second);
  CHECK(second.error().code == dsec::base::errc::io);
  CHECK(second.error().sys_errno == EADDRINUSE);
  CHECK(second.error().message.find("127.0.0.1:" + std::to_string(gateway.port())) !=
        std::string::npos);
}

TEST_CASE("a bind address that is none is an error that names it") {
  dsec::base::gateway_config config;
  config.bind = "not-an-address";
  const auto started = listener::start(config, {});
  REQUIRE_FALSE(started);
  CHECK(started.error().code == dsec::base::errc::invalid_argument);
  CHECK(started.error().message.find("not-an-address") != std::string::npos);
}

#include "net/request_policy.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

using namespace dsec::net;
using dsec::base::errc;

TEST_CASE("Host names this door or it is refused") {
  const local_door door{"127.0.0.1", 7070};
  for (const char* good :
       {"127.0.0.1:7070", "localhost:7070", "LOCALHOST:7070", "[::1]:7070", "127.3.2.1:7070"}) {
    CAPTURE(good);
    CHECK(host_allowed(good, door));
  }
  for (const char* bad :
       {"", "127.0.0.1", "127.0.0.1:7071", "127.0.0.1:07070x", "evil.example:7070",
        "127.evil.example:7070", "127.0.0.1.evil.example:7070", "localhost.evil.example:7070",
        "user@127.0.0.1:7070", "127.0.0.1:7070/x", "[::1:7070", "[::1]7070", ":7070",
        "127.0.0.1:99999", "127.0.0.1:", "10.0.0.1:7070", "127.0.0.1 :7070"}) {
    CAPTURE(bad);
    CHECK_FALSE(host_allowed(bad, door));
  }
}

TEST_CASE("Host may be the address the connection came in on") {
  CHECK(host_allowed("10.1.2.3:80", {"10.1.2.3", 80}));
  CHECK(host_allowed("10.1.2.3", {"10.1.2.3", 80}));
  CHECK(host_allowed("[FD00::1]:7070", {"fd00::1", 7070}));
  CHECK_FALSE(host_allowed("10.1.2.4:80", {"10.1.2.3", 80}));
  // IPv4 clients of a gateway on "::".
  CHECK(host_allowed("10.1.2.3:80", {"::ffff:10.1.2.3", 80}));
  CHECK_FALSE(host_allowed("10.1.2.4:80", {"::ffff:10.1.2.3", 80}));
}

TEST_CASE("Origin is the page of this host") {
  CHECK(origin_allowed("http://127.0.0.1:7070", "127.0.0.1:7070"));
  CHECK(origin_allowed("HTTP://LocalHost:7070", "localhost:7070"));
  for (const char* bad :
       {"null", "", "http://", "https://127.0.0.1:7070", "http://localhost:7070",
        "http://127.0.0.1:7070.evil.example", "http://evil.example", "http://127.0.0.1"}) {
    CAPTURE(bad);
    CHECK_FALSE(origin_allowed(bad, "127.0.0.1:7070"));
  }
}

TEST_CASE("a bearer token is what follows the scheme") {
  CHECK(bearer_token("Bearer abc") == "abc");
  CHECK(bearer_token("bearer   abc") == "abc");
  CHECK_FALSE(bearer_token("Bearer "));
  CHECK_FALSE(bearer_token("Bearer"));
  CHECK_FALSE(bearer_token("Basic abc"));
  CHECK_FALSE(bearer_token(""));
}

TEST_CASE("an error body is JSON whatever the message holds") {
  const auto body =
      nlohmann::json::parse(error_body(dsec::base::errc::unavailable, "a \"quoted\"\n\xff byte"));
  CHECK(body["error"]["code"] == "unavailable");
  CHECK(body["error"]["retryable"] == true);
}

TEST_CASE("a path is a target without its query") {
  CHECK(path_of("/healthz?verbose=1") == "/healthz");
  CHECK(path_of("/") == "/");
  CHECK_FALSE(path_of("http://127.0.0.1/healthz"));
  CHECK_FALSE(path_of("*"));
}

TEST_CASE("with TLS the origin is https, and names of the certificate are hosts") {
  const local_door door{"10.1.2.3", 7070, true,
                        [](const std::string& host) { return host == "gate.example"; }};
  CHECK(host_allowed("GATE.example:7070", door));
  CHECK_FALSE(host_allowed("gate.example:7071", door));
  CHECK_FALSE(host_allowed("gate.example", door));
  CHECK_FALSE(host_allowed("evil.example:7070", door));
  CHECK(host_allowed("10.1.2.3", {"10.1.2.3", 443, true}));
  CHECK(origin_allowed("https://gate.example:7070", "gate.example:7070", true));
  CHECK_FALSE(origin_allowed("http://gate.example:7070", "gate.example:7070", true));
  CHECK_FALSE(origin_allowed("https://evil.example", "gate.example:7070", true));
}

TEST_CASE("a ticket is found among the subprotocols, and one of them is answered") {
  CHECK(ticket_of("dsec.ticket.abc") == "abc");
  CHECK(ticket_of("dsec, \tdsec.ticket.abc ,x") == "abc");
  for (const char* none : {"", "dsec", "dsec.ticket.", "dsec.ticket", "xdsec.ticket.abc", ",,"})
    CHECK_FALSE(ticket_of(none));
  CHECK(chosen_subprotocol("dsec, dsec.ticket.abc") == "dsec");
  CHECK(chosen_subprotocol("dsec.ticket.abc,dsec") == "dsec");
  CHECK(chosen_subprotocol("chat, dsec.ticket.abc") == "dsec.ticket.abc");
  CHECK(chosen_subprotocol("chat").empty());
  CHECK(chosen_subprotocol("").empty());
}

TEST_CASE("what a refusal says is read back, and what else may come is no refusal") {
  const auto body = dsec::net::error_body(errc::unauthenticated, "no \"trust\" in it");
  const auto read = read_error_body(body);
  REQUIRE(read);
  CHECK(read->code == errc::unauthenticated);
  CHECK(read->message == "no \"trust\" in it");
  for (const char* other :
       {"", "<html>", "[]", "7", R"({"error":7})", R"({"error":{}})", R"({"error":{"code":"io"}})",
        R"({"error":{"code":7,"message":"a"}})", R"({"error":{"code":"io","message":7}})",
        R"({"error":{"code":"nothing-known","message":"a"}})",
        R"({"error":{"code":"ok","message":"a"}})"}) {
    INFO(other);
    CHECK_FALSE(read_error_body(other));
  }
  CHECK_FALSE(read_error_body(dsec::net::error_body(errc::io, std::string(100'000, 'a'))));
}

// TLS at the gateway's door: what its files must be, and clients that do not speak it. That clients
// are served over it is seen from outside: tests/e2e/test_tls.py.
#include <catch2/catch.hpp>
#include <chrono>
#include <nlohmann/json.hpp>

#include "unit/net/certificate.hpp"
#include "unit/net/gateway_fixture.hpp"
#include "unit/net/raw_client.hpp"

using namespace dsec::net::test;
using namespace std::chrono_literals;
using dsec::base::errc;
using dsec::base::gateway_config;
using dsec::net::heartbeat;
using dsec::net::listener;
using dsec::tests::temp_dir;
using steady = std::chrono::steady_clock;

namespace {

dsec::base::error error_of(gateway_config config) {
  config.port = 0;
  const auto started = listener::start(config, {});
  REQUIRE_FALSE(started);
  return started.error();
}

bool names(const dsec::base::error& e, const std::filesystem::path& file) {
  return e.message.find(file.string()) != std::string::npos;
}

constexpr heartbeat hasty{.exchange = 300ms};

}  // namespace

TEST_CASE("a certificate or key that cannot be used is an error that names the file") {
  const temp_dir dir;
  const auto good = make_certificate(dir, "good");
  const auto other = make_certificate(dir, "other");
  auto config = good;
  config.tls_cert = dir / "missing.pem";
  CHECK(error_of(config).code == errc::not_found);
  CHECK(names(error_of(config), config.tls_cert));
  config.tls_cert = dir.path();  // a directory
  CHECK(error_of(config).code == errc::not_found);
  dsec::tests::write(dir / "rubbish.pem", "no certificate");
  config.tls_cert = dir / "rubbish.pem";
  CHECK(error_of(config).code == errc::invalid_argument);
  CHECK(names(error_of(config), config.tls_cert));
  config = good;
  config.tls_key = other.tls_key;
  CHECK(error_of(config).code == errc::invalid_argument);
  CHECK(names(error_of(config), config.tls_key));
  config.tls_key = dir / "rubbish.pem";
  CHECK(error_of(config).code == errc::invalid_argument);
}

TEST_CASE("HTTP without TLS to a port with it is told so") {
  const temp_dir dir;
  gateway_fixture gateway(make_certificate(dir, "good"));
  raw_client client(gateway.port());
  const auto answer = client.get("/healthz");
  CHECK(answer.status == 400);
  const auto error = nlohmann::json::parse(answer.body)["error"];
  CHECK(error["code"] == "protocol");
  CHECK(error["message"].get<std::string>().find("wss://") != std::string::npos);
  CHECK(client.closed_by_peer());
}

TEST_CASE("what is no TLS ends the connection, and a ClientHello that never ends does so in time") {
  const temp_dir dir;
  gateway_fixture gateway(make_certificate(dir, "good"), hasty);
  raw_client rubbish(gateway.port());
  rubbish.send("\x17\x03\x01\xff\xffrubbish");
  CHECK(rubbish.closed_by_peer());

  const auto began = steady::now();
  raw_client slow(gateway.port());
  slow.send("\x16\x03\x01\x02");  // a byte of its length is missing
  CHECK(slow.closed_by_peer());
  CHECK(steady::now() - began >= hasty.exchange);
  CHECK(steady::now() - began < hasty.exchange + 5s);
}

TEST_CASE("a header that comes byte by byte does not hold a connection for long") {
  gateway_fixture gateway({}, hasty);
  raw_client slow(gateway.port());
  const auto began = steady::now();
  slow.send("GET /healthz HTTP/1.1\r\nHost: 127.0");
  CHECK(slow.closed_by_peer());
  CHECK(steady::now() - began >= hasty.exchange);
  // One that has had its answer may ask again, later than that.
  raw_client patient(gateway.port());
  CHECK(patient.get("/healthz").status == 200);
  CHECK(patient.get("/healthz").status == 200);
  CHECK(patient.closed_by_peer());
}

TEST_CASE("a certificate is replaced while it serves, and a bad one is not taken") {
  const temp_dir dir;
  const auto config = make_certificate(dir, "good");
  gateway_fixture gateway(config);
  make_certificate(dir, "good");
  const auto take = gateway.door->load_certificate();
  REQUIRE(take);
  (*take)();
  dsec::tests::write(config.tls_key, "rubbish");
  const auto bad = gateway.door->load_certificate();
  REQUIRE_FALSE(bad);
  CHECK(names(bad.error(), config.tls_key));
  CHECK(raw_client(gateway.port()).get("/healthz").status == 400);  // TLS still
}

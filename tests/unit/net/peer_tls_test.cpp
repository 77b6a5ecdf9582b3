// Links over TLS: which certificates let a worker in, and which coordinator it believes. The far
// end of each is a real listener; both sides' files are made here.
#include <boost/asio/read_until.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/asio/write.hpp>
#include <catch2/catch.hpp>

#include "net/hub.hpp"
#include "proto/peer.hpp"
#include "unit/net/certificate.hpp"
#include "unit/net/link_end.hpp"

using namespace dsec::net;
using namespace dsec::net::test;
using dsec::base::errc;
using dsec::tests::temp_dir;
namespace base = dsec::base;

namespace {

/// A coordinator's door and a worker's configuration, each with the authority of the other.
struct two_sides {
  temp_dir dir;
  authority of_coordinators{dir, "coordinators-ca"}, of_workers{dir, "workers-ca"};
  certificate_files door_files = of_coordinators.issue("door");
  base::config worker = worker_with(of_workers.issue("worker"));
  end theirs, ours, clients;
  std::unique_ptr<listener> door;

  ~two_sides() {
    if (door) door->stop();
  }

  [[nodiscard]] base::config worker_with(const certificate_files& files) const {
    base::config c;
    c.peer.ca_file = of_coordinators.file();
    c.peer.cert_file = files.certificate;
    c.peer.key_file = files.key;
    return c;
  }

  void open_door(bool with_tls = true) {
    base::gateway_config config;
    config.port = 0;
    if (with_tls) {
      config.tls_cert = door_files.certificate;
      config.tls_key = door_files.key;
    }
    auto started = listener::start(
        config,
        {.gate = std::make_shared<dsec::auth::gate>(std::vector{
             dsec::auth::known_key{"k-test", "tester", dsec::auth::hash_of("right-key")}}),
         .opened = [this](auto s, const auto&) { return clients.serve(std::move(s)); },
         .get = [](const http_get&) { return std::optional<http_answer>(); },
         .peer_opened = [this](auto s, const auto&) { return theirs.serve(std::move(s)); }},
        {}, with_tls ? of_workers.file() : std::filesystem::path());
    REQUIRE(started);
    door = *std::move(started);
  }

  /// Why there is no link.
  base::error refusal(peer_connector& connector, const std::string& host = "127.0.0.1") {
    const auto before = ours.failures.size();
    ours.dial(connector, {host, door->port()});
    REQUIRE(ours.eventually([&] { return ours.failures.size() > before; }));
    CHECK(ours.session == nullptr);
    CHECK(theirs.session == nullptr);
    return ours.failures.back();
  }
  base::error refusal(const base::config& config) {
    const auto connector = start(config);
    return refusal(*connector);
  }
};

void says(const base::error& e, std::string_view what) {
  INFO(e.message);
  CHECK(e.message.find(what) != std::string::npos);
}

/// What a TLS client that has no certificate is answered, as far as `until`.
std::string answer_to(std::uint16_t port, const std::string& path, const std::string& headers,
                      const std::string& until) {
  asio::io_context io;
  asio::ssl::context trusting(asio::ssl::context::tls_client);
  asio::ssl::stream<tcp::socket> stream(io, trusting);
  stream.next_layer().connect({asio::ip::address_v4::loopback(), port});
  stream.handshake(asio::ssl::stream_base::client);
  asio::write(stream, asio::buffer("GET " + path + " HTTP/1.1\r\nHost: 127.0.0.1:" +
                                   std::to_string(port) + "\r\n" + headers + "\r\n"));
  std::string answer;
  asio::read_until(stream, asio::dynamic_buffer(answer), until);
  return answer;
}

base::error error_of(const base::config& config) {
  const auto started = peer_connector::start(config);
  REQUIRE_FALSE(started);
  return started.error();
}

}  // namespace

TEST_CASE("a link over TLS stands when each side shows what the other trusts") {
  two_sides both;
  both.open_door();
  const auto connector = start(both.worker);
  both.ours.dial(*connector, {"127.0.0.1", both.door->port()});
  REQUIRE(both.ours.eventually([&] { return both.ours.session != nullptr; }));
  REQUIRE(both.theirs.eventually([&] { return both.theirs.session != nullptr; }));
  capnp::MallocMessageBuilder m;
  m.initRoot<dsec::proto::PeerMessage>().initBody().initReply().initReply(1000);
  both.ours.session->send(dsec::proto::frame::from_builder(m));
  both.theirs.session->send(dsec::proto::frame::from_builder(m));
  CHECK(both.theirs.eventually([&] { return both.theirs.sizes.size() == 1; }));
  CHECK(both.ours.eventually([&] { return both.ours.sizes.size() == 1; }));
  CHECK(both.ours.failures.empty());
}

TEST_CASE("a worker whose certificate is not good is told so by name, and does not get in") {
  two_sides both;
  both.open_door();
  const temp_dir elsewhere;
  const authority stranger(both.dir, "strangers-ca");
  const auto with = [&](const certificate_files& files) { return both.worker_with(files); };
  std::string what;
  base::config worker;
  SECTION("it has expired") {
    worker = with(both.of_workers.issue("late", {.valid_for = -3600}));
    what = "certificate has expired";
  }
  SECTION("another authority has signed it") {
    worker = with(stranger.issue("stranger"));
    what = "unable to get local issuer certificate";
  }
  SECTION("another authority of the same name has signed it") {
    worker = with(authority(elsewhere, "workers-ca").issue("stranger"));
    what = "the certificate of this worker is not trusted";
  }
  SECTION("who signs coordinators does not sign workers") {
    worker = with(both.of_coordinators.issue("other"));
    what = "unable to get local issuer certificate";
  }
  SECTION("nobody but itself has signed it") {
    const auto own = make_certificate(both.dir, "own");
    worker = with({own.tls_cert, own.tls_key});
    what = "self-signed certificate";
  }
  SECTION("it is a server's") {
    worker = with(both.of_workers.issue("server", {.use = "serverAuth"}));
    what = "unsuitable certificate purpose";
  }
  const auto e = both.refusal(worker);
  CHECK(e.code == errc::unauthenticated);
  says(e, what);
  says(e, "peer.ca_file");
  says(e, worker.peer.cert_file.string());
}

TEST_CASE("without TLS there is no way in where there is TLS, on loopback either") {
  two_sides both;
  both.open_door();
  const auto e = both.refusal(base::config());
  CHECK(e.code == errc::protocol);
  says(e, "wss://");
}

TEST_CASE("a coordinator whose certificate is not good is not spoken to") {
  two_sides both;
  std::string what, host = "127.0.0.1";
  SECTION("it has expired") {
    both.door_files = both.of_coordinators.issue("late", {.valid_for = -3600});
    what = "certificate has expired";
  }
  SECTION("it is for another address") {
    both.door_files = both.of_coordinators.issue("elsewhere", {.names = "IP:10.9.8.7"});
    what = "IP address mismatch";
  }
  SECTION("it is for another name") {
    host = "localhost";
    what = "hostname mismatch";
  }
  SECTION("another authority has signed it") {
    both.door_files = both.of_workers.issue("other");
    what = "unable to get local issuer certificate";
  }
  SECTION("it is a client's") {
    both.door_files = both.of_coordinators.issue("client", {.use = "clientAuth"});
    what = "unsuitable certificate purpose";
  }
  both.open_door();
  const auto connector = start(both.worker);
  const auto e = both.refusal(*connector, host);
  CHECK(e.code == errc::unauthenticated);
  says(e, what);
  says(e, "gateway.tls_cert");
  says(e, both.of_coordinators.file().string());
}

TEST_CASE("a coordinator without TLS is not spoken to by a worker with it") {
  two_sides both;
  both.open_door(false);
  const auto e = both.refusal(both.worker);
  CHECK(e.code == errc::unavailable);
  says(e, "gateway.tls_cert");
}

TEST_CASE("files of a link that cannot be used are named") {
  two_sides both;
  const auto refused = [&](std::filesystem::path base::peer_config::*file, const auto& as) {
    auto worker = both.worker;
    worker.peer.*file = as;
    const auto e = error_of(worker);
    says(e, (worker.peer.*file).string());
    return e;
  };
  dsec::tests::write(both.dir / "rubbish", "no certificate", 0600);
  const auto missing = both.dir / "missing", rubbish = both.dir / "rubbish";
  using peer = base::peer_config;
  for (const auto file : {&peer::ca_file, &peer::cert_file, &peer::key_file}) {
    CHECK(refused(file, missing).code == errc::not_found);
    CHECK(refused(file, rubbish).code == errc::invalid_argument);
  }
  CHECK(refused(&peer::key_file, both.door_files.key).code == errc::invalid_argument);
  std::filesystem::permissions(both.worker.peer.key_file, std::filesystem::perms::group_read,
                               std::filesystem::perm_options::add);
  const auto e = error_of(both.worker);
  CHECK(e.code == errc::permission_denied);
  says(e, "chmod 600");

  base::gateway_config door;
  door.port = 0;
  door.tls_cert = both.door_files.certificate;
  door.tls_key = both.door_files.key;
  const auto started = listener::start(door, {}, {}, rubbish);
  REQUIRE_FALSE(started);
  says(started.error(), rubbish.string());
}

TEST_CASE("files of a link are read again, and used once all of them are good") {
  two_sides both;
  both.open_door();
  const auto late = both.of_workers.issue("late", {.valid_for = -3600});
  const auto connector = start(both.worker_with(late));
  says(both.refusal(*connector), "certificate has expired");

  dsec::tests::write(late.key, "rubbish", 0600);
  const auto bad = connector->read_certificate();
  REQUIRE_FALSE(bad);
  says(bad.error(), late.key.string());

  both.of_workers.issue("late");
  const auto good = connector->read_certificate();
  REQUIRE(good);
  says(both.refusal(*connector), "certificate has expired");
  (*good)();
  both.ours.dial(*connector, {"127.0.0.1", both.door->port()});
  REQUIRE(both.ours.eventually([&] { return both.ours.session != nullptr; }));
  REQUIRE(both.theirs.eventually([&] { return both.theirs.session != nullptr; }));

  // The door's authorities too: who was let in stays, others are not let in any more.
  std::filesystem::copy_file(both.of_coordinators.file(), both.of_workers.file(),
                             std::filesystem::copy_options::overwrite_existing);
  const auto at_door = both.door->load_certificate();
  REQUIRE(at_door);
  (*at_door)();
  const auto again = start(both.worker_with(late));
  both.ours.dial(*again, {"127.0.0.1", both.door->port()});
  const auto before = std::size_t{2};
  REQUIRE(both.ours.eventually([&] { return both.ours.failures.size() > before; }));
  CHECK(both.ours.failures.back().code == errc::unauthenticated);
  CHECK(both.ours.closed == 0);
}

TEST_CASE("a client needs no certificate where workers do, and its key is none") {
  two_sides both;
  both.open_door();
  const auto port = both.door->port();
  const std::string upgrade =
      "Authorization: Bearer right-key\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
      "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
  CHECK(answer_to(port, "/v1/ws", upgrade, "\r\n\r\n").find("HTTP/1.1 101 ") == 0);
  const auto refused = answer_to(port, "/v1/peer", upgrade, "}");
  CHECK(refused.find("HTTP/1.1 401 ") == 0);
  CHECK(refused.find("it shows none") != std::string::npos);
  CHECK(both.theirs.session == nullptr);
}

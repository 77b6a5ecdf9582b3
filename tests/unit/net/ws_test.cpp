#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <span>
#include <thread>

#include "unit/net/gateway_fixture.hpp"
#include "unit/net/raw_client.hpp"

using namespace dsec::net::test;
using dsec::proto::max_message_bytes;
using dsec::proto::max_queued_bytes;

namespace {

bool one_closed(const std::vector<gateway_fixture::events>& all) {
  return !all.empty() && all[0].closed == 1;
}

dsec::proto::frame pong(std::uint64_t id) {
  capnp::MallocMessageBuilder builder;
  auto reply = builder.initRoot<dsec::proto::Reply>();
  reply.setId(id);
  reply.getBody().setPong();
  return dsec::proto::frame::from_builder(builder);
}

/// The session of a client that is let in and has said one binary message of two.
std::shared_ptr<dsec::net::ws_session> after_a_ping(gateway_fixture& gateway, raw_client& client) {
  REQUIRE(client.upgrade("right-key") == 101);
  auto session = gateway.session();
  session->grant(2);
  client.send_frame(ws_frame::binary, ping_request(1));
  REQUIRE(gateway.eventually([](const auto& all) { return all[0].messages.size() == 1; }));
  return session;
}

}  // namespace

TEST_CASE("an upgrade with the right key opens a session for its principal") {
  gateway_fixture gateway;
  raw_client client(gateway.port());
  CHECK(client.upgrade("right-key") == 101);
  gateway.session();
  const auto seen = gateway.seen();
  CHECK(seen[0].info.principal == "tester");
  CHECK(seen[0].info.peer.starts_with("127.0.0.1:"));
}

TEST_CASE("an upgrade without a known key is a typed 401 and opens nothing") {
  gateway_fixture gateway;
  CHECK(raw_client(gateway.port()).upgrade("") == 401);
  CHECK(raw_client(gateway.port()).upgrade("wrong-key") == 401);
  raw_client client(gateway.port());
  const auto answer =
      client.get("/v1/ws",
                 "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                 "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n");
  CHECK(answer.status == 401);
  CHECK(answer.headers.at("www-authenticate") == "Bearer");
  CHECK(answer.body.find("\"unauthenticated\"") != std::string::npos);
  CHECK(gateway.seen().empty());
}

TEST_CASE("a ticket opens one session for its principal, whatever the headers lack") {
  gateway_fixture gateway;
  const auto ticket = gateway.gate->new_ticket({"tester", "k-test"}).value();
  const auto offer = "Sec-WebSocket-Protocol: dsec, dsec.ticket." + ticket + "\r\n";
  const std::string upgrade =
      "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n" +
      offer;
  raw_client client(gateway.port());
  const auto answer = client.get("/v1/ws", upgrade);
  CHECK(answer.status == 101);
  CHECK(answer.headers.at("sec-websocket-protocol") == "dsec");
  gateway.session();
  CHECK(gateway.seen()[0].info.principal == "tester");
  CHECK(gateway.seen()[0].info.key_id == "k-test");
  const auto again = raw_client(gateway.port()).get("/v1/ws", upgrade);
  CHECK(again.status == 401);
  CHECK(again.body.find("this ticket") != std::string::npos);
  CHECK(raw_client(gateway.port()).upgrade("wrong-key", offer) == 401);
}

TEST_CASE("a session that is expelled ends with the close code for it, after what is queued") {
  gateway_fixture gateway;
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  gateway.session()->send(pong(7));
  gateway.session()->expel("this API key was revoked");
  const auto reply = client.frame();
  REQUIRE(reply);
  CHECK(reply->op == ws_frame::binary);
  const auto closing = client.close_frame();
  REQUIRE(closing);
  CHECK(closing->close_code() == 4401);
  CHECK(closing->close_reason() == "this API key was revoked");
}

TEST_CASE("a session that the gateway leaves says so, after what is queued") {
  gateway_fixture gateway;
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  gateway.session()->send(pong(7));
  gateway.session()->leave("dsecd is stopping");
  const auto reply = client.frame();
  REQUIRE(reply);
  CHECK(reply->op == ws_frame::binary);
  const auto closing = client.close_frame();
  REQUIRE(closing);
  CHECK(closing->close_code() == 1001);
  CHECK(closing->close_reason() == "dsecd is stopping");
}

TEST_CASE("an upgrade by a page of another origin is refused") {
  gateway_fixture gateway;
  CHECK(raw_client(gateway.port()).upgrade("right-key", "Origin: http://evil.example\r\n") == 403);
  CHECK(gateway.seen().empty());
}

TEST_CASE("a plain GET of the WebSocket path is told to upgrade") {
  gateway_fixture gateway;
  CHECK(raw_client(gateway.port()).get("/v1/ws", "Authorization: Bearer right-key\r\n").status ==
        426);
}

TEST_CASE("frames arrive whole and answers come back in order") {
  gateway_fixture gateway;
  gateway.echo = true;
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  gateway.session()->grant(4);
  const std::string big = ping_request(7, 3U << 20U);
  for (std::uint64_t id = 1; id <= 20; ++id) client.send_frame(ws_frame::binary, ping_request(id));
  client.send_frame(ws_frame::binary, big);
  for (std::uint64_t id = 1; id <= 20; ++id) {
    const auto f = client.frame();
    REQUIRE(f);
    CHECK(f->op == ws_frame::binary);
    CHECK(f->payload == ping_request(id));
  }
  const auto last = client.frame();
  REQUIRE(last);
  CHECK(last->payload == big);
}

TEST_CASE("a message in fragments is one frame") {
  gateway_fixture gateway;
  gateway.echo = true;
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  gateway.session()->grant(1);
  const std::string whole = ping_request(1);
  client.send_frame(ws_frame::binary, whole.substr(0, 5), false);
  client.send_frame(0, whole.substr(5));
  CHECK(client.frame().value().payload == whole);
}

TEST_CASE("a connection that begins with text is answered in text") {
  gateway_fixture gateway;
  gateway.answer = pong(5);
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  gateway.session()->grant(2);
  for (int i = 0; i < 2; ++i) {
    client.send_frame(ws_frame::text, R"({"id":5,"body":{"ping":null}})");
    const auto answer = client.frame();
    REQUIRE(answer);
    CHECK(answer->op == ws_frame::text);
    CHECK(answer->payload ==
          R"({"id":"5","body":{"pong":null},"truncated":false,"unreachable":[]})");
  }
  const auto requests = gateway.seen()[0].messages;
  REQUIRE(requests.size() == 2);
  const auto bytes = requests[0].bytes();
  const auto ping = ping_request(5);
  CHECK(std::ranges::equal(bytes, std::as_bytes(std::span(ping))));
}

TEST_CASE("after a frame that says so both ways are packed") {
  gateway_fixture gateway;
  raw_client client(gateway.port());
  const auto session = after_a_ping(gateway, client);
  CHECK_FALSE(session->is_text());
  session->send_then_pack(pong(1));
  session->send(pong(2));
  const auto plain = client.frame();
  REQUIRE(plain);
  CHECK(std::ranges::equal(std::as_bytes(std::span(plain->payload)), pong(1).bytes()));
  const auto packed = client.frame();
  REQUIRE(packed);
  CHECK(packed->payload == pong(2).packed());
  const auto ping = ping_request(3);
  const auto request = dsec::proto::frame::from_bytes(std::as_bytes(std::span(ping)));
  client.send_frame(ws_frame::binary, request->packed());
  REQUIRE(gateway.eventually([](const auto& all) { return all[0].messages.size() == 2; }));
  CHECK(std::ranges::equal(gateway.seen()[0].messages[1].bytes(), request->bytes()));
}

TEST_CASE("what is not packed is no message on a packed connection") {
  gateway_fixture gateway;
  raw_client client(gateway.port());
  const auto session = after_a_ping(gateway, client);
  session->send_then_pack(pong(1));
  client.send_frame(ws_frame::binary, std::string(64, '\xff'));
  REQUIRE(gateway.eventually([](const auto& all) { return all[0].malformed.size() == 1; }));
  CHECK(gateway.seen()[0].malformed[0].code == dsec::base::errc::protocol);
}

TEST_CASE("a reply that is too large as text is an error to its request") {
  gateway_fixture gateway;
  capnp::MallocMessageBuilder builder;
  auto reply = builder.initRoot<dsec::proto::Reply>();
  reply.setId(5);
  reply.getBody().initOutput().initData(13U << 20U);
  gateway.answer = dsec::proto::frame::from_builder(builder);
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  gateway.session()->grant(1);
  client.send_frame(ws_frame::text, R"({"id":5,"body":{"ping":null}})");
  const auto answer = client.frame();
  REQUIRE(answer);
  CHECK_THAT(answer->payload,
             Catch::Contains(R"("id":"5")") && Catch::Contains(R"("code":"too_large")"));
}

TEST_CASE("large messages in text hold up nobody else, and keep their order") {
  gateway_fixture gateway;
  gateway.echo = true;
  raw_client large(gateway.port());
  REQUIRE(large.upgrade("right-key") == 101);
  gateway.session()->grant(8);
  const std::string data(12U << 20U, 'A');
  const std::string write = R"({"id":1,"body":{"writeFile":{"data":")" + data + R"("}}})";
  raw_client small(gateway.port());
  REQUIRE(small.upgrade("right-key") == 101);
  gateway.session(1)->grant(100);
  large.send_frame(ws_frame::text, write);
  large.send_frame(ws_frame::text, R"({"id":2,"body":{"ping":null}})");
  for (std::uint64_t i = 1; i <= 50; ++i) {
    small.send_frame(ws_frame::binary, ping_request(i));
    CHECK(small.frame().value().payload == ping_request(i));
  }
  REQUIRE(gateway.eventually([](const auto& all) { return all[0].messages.size() == 2; }));
  std::vector<std::uint64_t> ids;
  const auto seen = gateway.seen();
  for (const auto& f : seen[0].messages) {
    REQUIRE(dsec::proto::view<dsec::proto::Request>(f).read(
        [&](auto request) { ids.push_back(request.getId()); }));
  }
  CHECK(ids == std::vector<std::uint64_t>{1, 2});
}

TEST_CASE("a listener stops while a large text is read") {
  gateway_fixture gateway;
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  gateway.session()->grant(1);
  client.send_frame(ws_frame::text, R"({"id":1,"body":{"writeFile":{"data":")" +
                                        std::string(12U << 20U, 'A') + R"("}}})");
  gateway.door->stop();
  CHECK(gateway.eventually(one_closed));
}

TEST_CASE("text that does not fit the schema is reported with the member's name") {
  gateway_fixture gateway;
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  gateway.session()->grant(1);
  client.send_frame(ws_frame::text, R"({"id":1,"body":{"exec":{"argv":"ls"}}})");
  const auto end = client.close_frame();
  REQUIRE(end);
  CHECK(end->close_code() == 1007);
  const auto seen = gateway.seen();
  REQUIRE(seen[0].malformed.size() == 1);
  CHECK(seen[0].malformed[0].message == "body.exec.argv must be a list");
}

TEST_CASE("a connection keeps to the encoding that it began with") {
  const bool began_with_text = GENERATE(true, false);
  const std::string text = R"({"id":5,"body":{"ping":null}})";
  gateway_fixture gateway;
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  gateway.session()->grant(2);
  client.send_frame(ws_frame::text + !began_with_text, began_with_text ? text : ping_request(5));
  client.send_frame(ws_frame::text + began_with_text, began_with_text ? ping_request(5) : text);
  const auto end = client.close_frame();
  REQUIRE(end);
  CHECK(end->close_code() == 1003);
  CHECK(end->close_reason().find("alternate") != std::string::npos);
  client.send_frame(ws_frame::close, end->payload);
  REQUIRE(gateway.eventually(one_closed));
  CHECK(gateway.seen()[0].messages.size() == 1);
}

TEST_CASE("a frame that is no message is reported, then the session closes") {
  gateway_fixture gateway;
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  gateway.session()->grant(8);
  client.send_frame(ws_frame::binary, "not capnp");
  client.send_frame(ws_frame::binary, ping_request(1));
  const auto end = client.close_frame();
  REQUIRE(end);
  CHECK(end->close_code() == 1007);
  client.send_frame(ws_frame::close, end->payload);
  REQUIRE(gateway.eventually(one_closed));
  const auto seen = gateway.seen();
  REQUIRE(seen[0].malformed.size() == 1);
  CHECK(seen[0].malformed[0].code == dsec::base::errc::protocol);
  CHECK(seen[0].messages.empty());
}

TEST_CASE("the answer to a frame that is no message is sent before the session closes") {
  gateway_fixture gateway;
  capnp::MallocMessageBuilder builder;
  builder.initRoot<dsec::proto::Reply>().getBody().initError().setCode("protocol");
  gateway.answer_malformed = dsec::proto::frame::from_builder(builder);
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  gateway.session()->grant(8);
  client.send_frame(ws_frame::binary, "not capnp");
  const auto answer = client.frame();
  REQUIRE(answer);
  CHECK(answer->op == ws_frame::binary);
  CHECK(answer->payload.size() == gateway.answer_malformed->bytes().size());
  const auto end = client.frame();
  REQUIRE(end);
  CHECK(end->op == ws_frame::close);
  CHECK(end->close_code() == 1007);
  CHECK_FALSE(end->close_reason().empty());
}

TEST_CASE("no more is read while large frames that somebody holds fill their room") {
  gateway_fixture gateway;
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  gateway.session()->grant(256);
  constexpr std::size_t piece = 4U << 20U;
  constexpr auto room = dsec::proto::max_pending_bytes / piece;
  const auto one = frame_bytes(ws_frame::binary, ping_request(1, piece));
  std::jthread sending([&] {
    for (std::size_t i = 0; i < 2 * room; ++i) client.send(one);
  });
  REQUIRE(gateway.eventually([&](const auto& all) { return all[0].messages.size() >= room; }));
  // Other connections' whole exchanges pass through the same threads meanwhile; what the sockets
  // hold of the next frame would be read in between.
  for (int i = 0; i < 50; ++i) CHECK(raw_client(gateway.port()).get("/healthz").status == 200);
  CHECK(gateway.seen()[0].messages.size() == room);
  gateway.forget_messages();
  CHECK(gateway.eventually([&](const auto& all) { return all[0].messages.size() == room; }));
}

TEST_CASE("who asks for room in the queue is told once when there is some") {
  gateway_fixture gateway;
  raw_client client(gateway.port(), 4096);
  REQUIRE(client.upgrade("right-key") == 101);
  auto session = gateway.session();
  CHECK(session->queued_at_most(0));
  capnp::MallocMessageBuilder builder;
  builder.initRoot<dsec::proto::Reply>().getBody().initFileData().initData(8U << 20U);
  const auto big = dsec::proto::frame::from_builder(builder);
  for (int i = 0; i < 4; ++i) session->send(big);
  CHECK_FALSE(session->queued_at_most(9U << 20U));
  CHECK(session->queued_at_most(33U << 20U));
  CHECK(gateway.seen()[0].room == 0);
  for (int i = 0; i < 4; ++i) CHECK(client.frame().value().payload.size() == big.bytes().size());
  CHECK(gateway.eventually([](const auto& all) { return all[0].room == 1; }));
  CHECK(session->queued_at_most(0));
}

TEST_CASE("a message over the limit is refused by its header alone") {
  gateway_fixture gateway;
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  gateway.session()->grant(1);
  client.send_frame_header(ws_frame::binary, max_message_bytes + 8);
  const auto end = client.close_frame();
  REQUIRE(end);
  CHECK(end->close_code() == 1009);
}

TEST_CASE("an unmasked frame is a protocol error") {
  gateway_fixture gateway;
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  gateway.session()->grant(1);
  client.send(std::string_view("\x82\x00", 2));
  const auto end = client.close_frame();
  REQUIRE(end);
  CHECK(end->close_code() == 1002);
  client.hang_up();
  REQUIRE(gateway.eventually(one_closed));
}

TEST_CASE("nothing is read before credit is granted, and one frame for each") {
  gateway_fixture gateway;
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  auto session = gateway.session();
  for (std::uint64_t id = 1; id <= 5; ++id) client.send_frame(ws_frame::binary, ping_request(id));
  // Another connection's whole exchange passes through the same threads meanwhile.
  CHECK(raw_client(gateway.port()).get("/healthz").status == 200);
  CHECK(gateway.seen()[0].messages.empty());
  session->grant(2);
  REQUIRE(gateway.eventually([](const auto& all) { return all[0].messages.size() == 2; }));
  CHECK(raw_client(gateway.port()).get("/healthz").status == 200);
  CHECK(gateway.seen()[0].messages.size() == 2);
  session->grant(3);
  REQUIRE(gateway.eventually([](const auto& all) { return all[0].messages.size() == 5; }));
}

TEST_CASE("a client without credit is held by TCP, not by memory") {
  gateway_fixture gateway;
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  gateway.session();
  constexpr std::size_t far_more_than_sockets_hold = 256U << 20U;
  const std::string piece(1U << 20U, 'x');
  CHECK(client.flood(piece, far_more_than_sockets_hold, 300) < far_more_than_sockets_hold / 2);
}

TEST_CASE("a client that does not read its replies is dropped when its queue is full") {
  gateway_fixture gateway;
  raw_client client(gateway.port(), 4096);
  REQUIRE(client.upgrade("right-key") == 101);
  auto session = gateway.session();
  capnp::MallocMessageBuilder builder;
  builder.initRoot<dsec::proto::Reply>().getBody().initFileData().initData(8U << 20U);
  const auto big = dsec::proto::frame::from_builder(builder);
  for (std::size_t sent = 0; sent <= max_queued_bytes + (16U << 20U); sent += big.bytes().size()) {
    session->send(big);
  }
  REQUIRE(gateway.eventually(one_closed));
  session->send(big);  // harmless
}

TEST_CASE("close sends what is queued first") {
  gateway_fixture gateway;
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  auto session = gateway.session();
  capnp::MallocMessageBuilder builder;
  builder.initRoot<dsec::proto::Reply>().getBody().initFileData().initData(1U << 20U);
  const auto piece = dsec::proto::frame::from_builder(builder);
  for (int i = 0; i < 10; ++i) session->send(piece);
  session->grant(1);  // a read is pending when the close handshake begins
  session->close("that is all");
  session->close("again");
  session->send(piece);
  for (int i = 0; i < 10; ++i) CHECK(client.frame().value().payload.size() == piece.bytes().size());
  const auto end = client.frame();
  REQUIRE(end);
  CHECK(end->op == ws_frame::close);
  CHECK(end->close_code() == 1000);
  CHECK(end->close_reason() == "that is all");
  client.send_frame(ws_frame::close, end->payload);
  CHECK(client.closed_by_peer());
  REQUIRE(gateway.eventually(one_closed));
}

TEST_CASE("a long reason is clipped to what a close frame holds") {
  gateway_fixture gateway;
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  gateway.session()->close(std::string(500, 'x'));
  CHECK(client.close_frame().value().close_reason() == std::string(123, 'x'));
}

TEST_CASE("a client that goes away, politely or not, is noticed") {
  gateway_fixture gateway;
  {
    raw_client polite(gateway.port());
    REQUIRE(polite.upgrade("right-key") == 101);
    gateway.session(0)->grant(1);
    polite.send_frame(ws_frame::close, "\x03\xe8");
    CHECK(polite.close_frame().value().close_code() == 1000);
    REQUIRE(gateway.eventually(one_closed));
  }
  {
    raw_client rude(gateway.port());
    REQUIRE(rude.upgrade("right-key") == 101);
    gateway.session(1)->grant(1);
  }
  REQUIRE(gateway.eventually([](const auto& all) { return all[1].closed == 1; }));
}

TEST_CASE("a ping is answered") {
  gateway_fixture gateway;
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  gateway.session()->grant(1);
  client.send_frame(ws_frame::ping, "hello");
  const auto answer = client.frame();
  REQUIRE(answer);
  CHECK(answer->op == ws_frame::pong);
  CHECK(answer->payload == "hello");
}

TEST_CASE("two hundred connections at once each get their own answers") {
  gateway_fixture gateway;
  gateway.echo = true;
  std::vector<std::unique_ptr<raw_client>> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(std::make_unique<raw_client>(gateway.port()));
    REQUIRE(clients.back()->upgrade("right-key") == 101);
  }
  for (std::size_t i = 0; i < clients.size(); ++i) gateway.session(i)->grant(1);
  for (std::size_t i = 0; i < clients.size(); ++i)
    clients[i]->send_frame(ws_frame::binary, ping_request(i + 1));
  for (std::size_t i = 0; i < clients.size(); ++i) {
    CHECK(clients[i]->frame().value().payload == ping_request(i + 1));
  }
  clients.clear();
  CHECK(gateway.eventually([](const auto& all) {
    return std::all_of(all.begin(), all.end(), [](const auto& one) { return one.closed == 1; });
  }));
}

TEST_CASE("stop while busy closes everybody, once, within a bounded time") {
  gateway_fixture gateway;
  gateway.echo = true;
  std::vector<std::unique_ptr<raw_client>> clients;
  for (int i = 0; i < 20; ++i) {
    clients.push_back(std::make_unique<raw_client>(gateway.port()));
    REQUIRE(clients.back()->upgrade("right-key") == 101);
    gateway.session(static_cast<std::size_t>(i))->grant(1);
  }
  raw_client half_a_request(gateway.port());
  half_a_request.send("GET /healthz HT");
  std::jthread traffic([&](const std::stop_token& enough) {
    const std::string one = frame_bytes(ws_frame::binary, ping_request(1));
    while (!enough.stop_requested()) {
      for (const auto& c : clients) c->flood(one, one.size(), 10);
    }
  });
  REQUIRE(gateway.eventually([](const auto& all) { return all[19].messages.size() > 3; }));
  auto outlives = gateway.session();
  const auto began = std::chrono::steady_clock::now();
  gateway.door->stop();
  const auto took = std::chrono::steady_clock::now() - began;
  traffic.request_stop();
  traffic.join();
  CHECK(took < std::chrono::seconds(5));
  for (const auto& one : gateway.seen()) {
    CHECK(one.closed == 1);
    CHECK_FALSE(one.message_after_closed);
  }
  gateway.door->stop();  // idempotent
  // An actor may hold its session longer than the listener lives.
  outlives->grant(1);
  outlives->close("too late");
}

TEST_CASE("an idle client is told that the gateway stops") {
  gateway_fixture gateway;
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  gateway.session()->grant(1);
  std::thread stopping([&] { gateway.door->stop(); });
  const auto end = client.close_frame();
  if (end) client.send_frame(ws_frame::close, end->payload);
  stopping.join();
  REQUIRE(end);
  CHECK(end->close_code() == 1001);
}

TEST_CASE("no process that is started later keeps the listener or a connection") {
  gateway_fixture gateway;
  raw_client client(gateway.port());
  REQUIRE(client.upgrade("right-key") == 101);
  gateway.session();
  int ours = 0;
  for (int fd = 0; fd < 1024; ++fd) {
    sockaddr_in at{};
    socklen_t size = sizeof at;
    if (::getsockname(fd, reinterpret_cast<sockaddr*>(&at), &size) != 0 || at.sin_family != AF_INET)
      continue;
    if (ntohs(at.sin_port) != gateway.port()) continue;
    ++ours;
    CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
  }
  CHECK(ours == 2);
}

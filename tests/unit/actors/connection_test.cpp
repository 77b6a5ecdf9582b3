#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <utility>

#include "node_fixture.hpp"
#include "proto/limits.hpp"

using namespace dsec::test;
using namespace std::chrono_literals;
namespace actors = dsec::actors;
namespace fake = dsec::fake;
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
        handler(
            dsec::actors::open_connection(*n.system, n.connections(), session, {"alice", "x"})) {
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

TEST_CASE("a revoked key ends its connections, mid-request, and no others") {
  node_fixture node;
  client alice(node, "alice"), bob(node, "bob");
  const auto id = node.running_sandbox(alice);
  const auto others = node.running_sandbox(bob);
  node.start->held = true;
  const auto creating = alice.ask(create());
  alice.call(write_file(id, "/a", "content"));
  node.copy->held = true;
  const auto reading = alice.ask(read_file(id, "/a"));
  REQUIRE_FALSE(alice.got(reading));
  caf::anon_send(node.slot->get(), actors::keys_revoked{{"k-alice", "k-unknown"}});
  node.run();
  CHECK(alice.got(reading)->code == "unauthenticated");
  CHECK(alice.got(creating)->code == "unauthenticated");
  CHECK(alice.session->expelled == std::vector<std::string>{"this API key was revoked"});
  // Nothing is answered any more.
  CHECK_FALSE(alice.got(alice.ask(get(id))));
  node.start->held = node.copy->held = false;
  node.run();
  CHECK(bob.call(get(others)).phase == "running");
  CHECK(bob.session->expelled.empty());
  // What it did not hear of is withdrawn as if it had gone; what it had goes on.
  CHECK(node.backend->host()->live() == 3);
  node.advance(10s, 1s);
  CHECK(node.backend->host()->live() == 2);
  client again(node, "alice");
  CHECK(again.call(get(id)).phase == "running");
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

namespace {

struct greeting {
  std::uint32_t version = 0, most_streams = 0, most_in_flight = 0;
  bool packed = false;
  std::vector<std::string> features;
};

/// What a connection that says this hello is answered.
greeting greet(stranger& s, const std::function<void(proto::Hello::Builder)>& more) {
  s.say(request([&](auto r) {
    r.setId(1);
    auto hello = r.getBody().initHello();
    hello.setProtocolVersion(1);
    more(hello);
  }));
  greeting g;
  const auto read = proto::view<proto::Reply>(s.session->sent.at(0)).read([&](auto reply) {
    if (!reply.getBody().isHello()) return;
    const auto hello = reply.getBody().getHello();
    g.version = hello.getProtocolVersion();
    g.packed = hello.getPacking() == proto::Packing::PACKED;
    g.most_streams = hello.getMaxStreams();
    g.most_in_flight = hello.getMaxInFlight();
    for (const auto f : hello.getFeatures()) g.features.emplace_back(f.begin(), f.size());
  });
  REQUIRE(read);
  return g;
}

}  // namespace

TEST_CASE("of the versions that a client speaks the newest common one is spoken") {
  node_fixture node;
  stranger newer(node);
  CHECK(greet(newer, [](auto h) {
          h.setProtocolVersion(99);
          h.setOldestVersion(1);
        }).version == 1);
  for (const auto& [oldest, newest] : {std::pair{2U, 99U}, std::pair{5U, 1U}}) {
    stranger s(node);
    CHECK(greet(s, [&](auto h) {
            h.setProtocolVersion(newest);
            h.setOldestVersion(oldest);
          }).version == 0);
    CHECK(decode(s.session->sent.at(0)).code == "unsupported");
    CHECK(s.session->closed.size() == 1);
  }
}

TEST_CASE("hello tells limits and features, and names none that it does not know") {
  node_fixture node;
  stranger s(node);
  const auto g = greet(s, [](auto h) {
    auto wanted = h.initFeatures(2);
    wanted.set(0, "teleport");
    wanted.set(1, "streams");
  });
  CHECK(g.features == std::vector<std::string>{"streams"});
  CHECK(g.most_streams == proto::max_streams);
  CHECK(g.most_in_flight == proto::max_in_flight);
  CHECK_FALSE(g.packed);
  CHECK_FALSE(s.session->packs);
}

TEST_CASE("packing is the client's choice, for binary messages") {
  node_fixture node;
  stranger binary(node);
  CHECK(greet(binary, [](auto h) { h.setPacking(proto::Packing::PACKED); }).packed);
  CHECK(binary.session->packs);
  CHECK(binary.session->granted == proto::max_in_flight + 1);
  stranger text(node);
  text.session->text = true;
  greet(text, [](auto h) { h.setPacking(proto::Packing::PACKED); });
  CHECK(decode(text.session->sent.at(0)).code == "invalid_argument");
  CHECK_FALSE(text.session->packs);
  CHECK(text.session->closed.size() == 1);
}

TEST_CASE("a packing that is not known and a thousand features are refused") {
  node_fixture node;
  stranger odd(node);
  greet(odd, [](auto h) { h.setPacking(static_cast<proto::Packing>(7)); });
  CHECK(decode(odd.session->sent.at(0)).code == "unsupported");
  stranger greedy(node);
  greet(greedy, [](auto h) { h.initFeatures(1000); });
  CHECK(decode(greedy.session->sent.at(0)).code == "invalid_argument");
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

TEST_CASE("a frame that is no message is answered, then the session is closed") {
  node_fixture node;
  stranger s(node);
  s.handler.malformed({dsec::base::errc::protocol, "message is shorter than its segment table", 0});
  node.run();
  CHECK(decode(s.session->sent.at(0)).code == "protocol");
  CHECK(s.session->closed.size() == 1);
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

namespace {

client::fill read_file(const std::string& sandbox_id) {
  return [=](auto r) {
    auto f = r.getBody().initReadFile();
    f.setSandboxId(sandbox_id.c_str());
    f.setPath("/f");
  };
}

client::fill write_file(const std::string& sandbox_id) {
  return [=](auto r) {
    auto w = r.getBody().initWriteFile();
    w.setSandboxId(sandbox_id.c_str());
    w.setPath("/f");
    w.setData(kj::StringPtr("content").asBytes());
  };
}

fake::script printing(std::size_t bytes) {
  return {.run =
              [=](const dsec::backends::exec_spec& spec) {
                fake::fate f;
                f.held = spec.argv.front() == "hold";
                f.out = std::string(bytes, 'x');
                return f;
              },
          .on_step = {}};
}

/// How many file operations the sandbox was asked for.
long operations(const node_fixture& node) {
  const auto steps = node.backend->steps();
  return std::count_if(steps.begin(), steps.end(), [](const std::string& s) {
    return s.starts_with("exec ") && s.find(" dsec.") != std::string::npos;
  });
}

}  // namespace

TEST_CASE("large replies are asked for a few at a time, and all are answered in the end") {
  node_fixture node;
  client alice(node, "alice");
  std::vector<std::string> ids;
  for (int i = 0; i < 8; ++i) {
    ids.push_back(node.running_sandbox(alice));
    alice.call(write_file(ids.back()));
  }
  const auto before = operations(node);
  node.copy->held = true;  // no answer gets done
  std::vector<std::uint64_t> asked;
  for (std::size_t i = 0; i < 64; ++i) asked.push_back(alice.ask(read_file(ids[i % 8])));
  const auto at_once = static_cast<long>(proto::max_promised_bytes / proto::max_data_bytes);
  CHECK(operations(node) - before <= at_once);
  CHECK(operations(node) - before > 0);
  CHECK(alice.call(get(ids[0])).phase == "running");  // small requests pass
  node.copy->held = false;
  node.run();
  CHECK(operations(node) - before == 64);
  for (const auto one : asked) CHECK(alice.got(one));
}

TEST_CASE("a sandbox that owes its client large replies does not hold up those of others") {
  node_fixture node;
  client alice(node, "alice");
  const auto bad = node.running_sandbox(alice);
  const auto good = node.running_sandbox(alice);
  for (const auto& id : {bad, good}) alice.call(write_file(id));
  const auto before = operations(node);
  node.copy->held = true;
  std::vector<std::uint64_t> asked;
  for (int i = 0; i < 64; ++i) asked.push_back(alice.ask(read_file(bad), 60'000));
  CHECK(operations(node) - before == 2);
  // The answers of one of them cannot be made, those of the other can.
  const auto stuck = std::exchange(node.copy->jobs, {});
  node.copy->held = false;
  CHECK(alice.call(read_file(good)).out == "content");
  CHECK_FALSE(alice.got(asked.front()));
  node.copy->held = true;
  node.advance(61s, 1s);
  for (const auto one : asked) CHECK(alice.got(one)->code == "deadline_exceeded");
  CHECK(operations(node) - before == 3);  // nothing was begun for the late ones
}

TEST_CASE("output is promised for and sent in pieces of its own size") {
  node_fixture node(printing(9U << 20U));
  client alice(node, "alice");
  std::vector<std::string> ids;
  for (int i = 0; i < 6; ++i) ids.push_back(node.running_sandbox(alice));
  for (const auto& id : ids) alice.call(exec(id, "c1", [](auto e) { e.setInlineLimit(1); }));
  CHECK(alice.call(read_output(ids[0], "c1")).out.size() == proto::max_output_bytes);
  node.copy->held = true;
  const auto before = node.copy->jobs.size();
  for (int i = 0; i < 12; ++i) alice.ask(read_output(ids[static_cast<std::size_t>(i) / 2], "c1"));
  const auto at_once = proto::max_promised_bytes / proto::max_output_bytes - 1;  // and envelopes
  CHECK(node.copy->jobs.size() - before == at_once);
}

TEST_CASE("a client that does not read gets no more large replies until it does") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  alice.session->queued = proto::max_promised_bytes;
  const auto first = alice.ask(read_file(id));
  const auto second = alice.ask(list());
  CHECK_FALSE(alice.got(first));
  CHECK_FALSE(alice.got(second));
  CHECK(alice.session->closed.empty());
  alice.read_replies(0);
  CHECK(alice.got(first));
  CHECK(alice.got(second));
}

TEST_CASE("a large reply that finds no room until its deadline is late, and holds up no other") {
  node_fixture node;
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  alice.session->queued = proto::max_promised_bytes;
  const auto late = alice.ask(read_file(id), 1000);
  const auto patient = alice.ask(read_file(id), 60'000);
  node.advance(2s);
  CHECK(alice.got(late)->code == "deadline_exceeded");
  alice.read_replies(0);
  CHECK(alice.got(patient));
  CHECK(operations(node) == 1);
}

TEST_CASE("output that finds no room comes not inline but when it is asked for") {
  node_fixture node(printing(200'000));
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  CHECK(alice.call(exec(id, "c1")).out.size() == 200'000);
  alice.session->queued = proto::max_promised_bytes;
  const auto a = alice.call(exec(id, "c2"));
  CHECK(a.state == "ended");
  CHECK(a.exit_code == 0);
  CHECK(a.out.empty());
  CHECK(a.out_total == 200'000);
  CHECK(alice.session->sent.back().bytes().size() < 1000);
}

TEST_CASE("a large request is not kept while its answer is waited for") {
  node_fixture node(printing(0));
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  auto whole = std::make_shared<int>(1);
  const std::weak_ptr<int> held = whole;
  alice.raw(request([&](auto r) {
              exec(id, "c1", [](auto e) {
                e.initArgv(1).set(0, "hold");
                e.initStdin(1U << 20U);
              })(r);
              r.setId(900);
            }).with(std::move(whole)));
  CHECK(alice.call(get_command(id, "c1")).state == "running");
  CHECK_FALSE(alice.got(900));
  CHECK(held.expired());
  node.backend->finish(id, "c1");
  node.run();
  CHECK(alice.got(900)->state == "ended");
}

#include <caf/exit_reason.hpp>
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "node_fixture.hpp"
#include "proto/limits.hpp"

using namespace dsec::test;
using namespace std::chrono_literals;
namespace fake = dsec::fake;
namespace proto = dsec::proto;
namespace base = dsec::base;

namespace {

const auto with_streams = [](proto::Hello::Builder h) { h.initFeatures(1).set(0, "streams"); };

/// One streamData.
struct piece {
  std::string data, end, code;
  std::uint64_t offset = 0, total = 0;
};

std::vector<piece> pieces(const client& c, std::uint64_t stream) {
  std::vector<piece> all;
  for (const auto& f : c.session->sent) {
    const auto read = proto::view<proto::Reply>(f).read([&](proto::Reply::Reader r) {
      if (!r.getBody().isStreamData() || r.getBody().getStreamData().getStreamId() != stream)
        return;
      CHECK(r.getId() == 0);
      const auto d = r.getBody().getStreamData();
      const char* names[] = {"none", "complete", "failed"};
      const auto bytes = d.getData();
      all.push_back({std::string(reinterpret_cast<const char*>(bytes.begin()), bytes.size()),
                     names[static_cast<int>(d.getEnd())], std::string(d.getError().getCode()),
                     d.getOffset(), d.getTotal()});
    });
    REQUIRE(read);
  }
  return all;
}

std::string together(const std::vector<piece>& all) {
  std::string data;
  for (const auto& p : all) data += p.data;
  return data;
}

client::fill open_output(std::uint64_t stream, const std::string& sandbox, std::uint64_t credit,
                         std::uint64_t offset = 0) {
  return [=](proto::Request::Builder r) {
    auto o = r.getBody().initOpenStream();
    o.setStreamId(stream);
    o.setCredit(credit);
    auto source = o.initSource().initOutput();
    source.setSandboxId(sandbox.c_str());
    source.setCommandId("c1");
    source.setOffset(offset);
  };
}

client::fill open_file(std::uint64_t stream, const std::string& sandbox, const std::string& path) {
  return [=](proto::Request::Builder r) {
    auto o = r.getBody().initOpenStream();
    o.setStreamId(stream);
    o.setCredit(1U << 20U);
    auto source = o.initSource().initFile();
    source.setSandboxId(sandbox.c_str());
    source.setPath(path.c_str());
  };
}

client::fill credit(std::uint64_t stream, std::uint64_t bytes) {
  return [=](proto::Request::Builder r) {
    auto c = r.getBody().initStreamCredit();
    c.setStreamId(stream);
    c.setBytes(bytes);
  };
}

client::fill close_stream(std::uint64_t stream) {
  return [=](proto::Request::Builder r) { r.getBody().initCloseStream().setStreamId(stream); };
}

fake::script writes(const std::string& output) {
  return {.run = [output](const dsec::backends::exec_spec&) {
    fake::fate f;
    f.out = output;
    return f;
  }};
}

/// A sandbox with a command c1 that runs until it is finished.
std::string with_held_command(node_fixture& node, client& c) {
  const auto id = node.running_sandbox(c);
  c.ask(exec(id, "c1", [](auto e) { e.initArgv(1).set(0, "hold"); }));
  return id;
}

}  // namespace

TEST_CASE("output is sent as far as the credit goes, and its end with the total") {
  node_fixture node(writes("0123456789"));
  client alice(node, "alice", with_streams);
  const auto id = node.running_sandbox(alice);
  alice.call(exec(id, "c1"));
  CHECK(alice.call(open_output(7, id, 4)).kind == "stream");
  CHECK(together(pieces(alice, 7)) == "0123");
  CHECK(alice.call(credit(7, 3)).kind == "stream");
  CHECK(together(pieces(alice, 7)) == "0123456");
  CHECK(pieces(alice, 7).back().end == "none");
  alice.call(credit(7, 100));
  const auto last = pieces(alice, 7).back();
  CHECK(last.data == "789");
  CHECK(last.offset == 7);
  CHECK(last.end == "complete");
  CHECK(last.total == 10);
  CHECK(alice.call(credit(7, 1)).code == "not_found");
  CHECK(alice.call(close_stream(7)).code == "not_found");
  // Its id is free.
  CHECK(alice.call(open_output(7, id, 100, 8)).kind == "stream");
  CHECK(pieces(alice, 7).back().data == "89");
}

TEST_CASE("without credit nothing is sent, not even the end") {
  node_fixture node(writes(""));
  client alice(node, "alice", with_streams);
  const auto id = node.running_sandbox(alice);
  alice.call(exec(id, "c1"));
  alice.call(open_output(1, id, 0));
  CHECK(pieces(alice, 1).empty());
  alice.call(credit(1, 1));
  REQUIRE(pieces(alice, 1).size() == 1);
  CHECK(pieces(alice, 1)[0].end == "complete");
  CHECK(pieces(alice, 1)[0].total == 0);
}

TEST_CASE("a stream follows what a command writes until it has ended") {
  node_fixture node(holding());
  client alice(node, "alice", with_streams);
  const auto id = with_held_command(node, alice);
  alice.call(open_output(1, id, 1000));
  CHECK(pieces(alice, 1).empty());
  node.backend->write(id, "c1", "abc");
  node.run();
  CHECK(together(pieces(alice, 1)) == "abc");
  node.advance(60s, 1s);  // longer than any one wait
  node.backend->write(id, "c1", "def");
  node.run();
  CHECK(together(pieces(alice, 1)) == "abcdef");
  fake::fate end;
  end.out = "abcdefghi";
  node.backend->finish(id, "c1", end);
  node.run();
  CHECK(together(pieces(alice, 1)) == "abcdefghi");
  CHECK(pieces(alice, 1).back().end == "complete");
  CHECK(pieces(alice, 1).back().total == 9);
}

TEST_CASE("a stream says so when its sandbox ends before the command, after all that was written") {
  node_fixture node(holding());
  client alice(node, "alice", with_streams);
  const auto id = with_held_command(node, alice);
  alice.call(open_output(1, id, 1000));
  node.backend->write(id, "c1", "abc");
  node.backend->fail(id, base::cause::backend, "its aether died");
  node.run();
  CHECK(together(pieces(alice, 1)) == "abc");
  CHECK(pieces(alice, 1).back().end == "failed");
  CHECK(pieces(alice, 1).back().code == "sandbox_failed");
}

TEST_CASE("a stream goes on when the actor that it asks dies") {
  node_fixture node(holding());
  client alice(node, "alice", with_streams);
  const auto id = with_held_command(node, alice);
  alice.call(open_output(1, id, 1000));
  caf::anon_send_exit(node.actor_of(id), caf::exit_reason::kill);
  node.run();
  node.backend->write(id, "c1", "abc");
  node.run();
  CHECK(together(pieces(alice, 1)) == "abc");
}

TEST_CASE("a stream that cannot be is refused with its reason") {
  node_fixture node(writes("x"));
  client alice(node, "alice", with_streams);
  const auto id = node.running_sandbox(alice);
  alice.call(exec(id, "c1"));
  CHECK(alice.call(open_output(1, id, 0)).kind == "stream");
  CHECK(alice.call(open_output(1, id, 0)).code == "already_exists");
  CHECK(alice.call(open_output(2, id, proto::max_stream_credit + 1)).code == "invalid_argument");
  CHECK(alice.call(credit(1, proto::max_stream_credit + 1)).code == "invalid_argument");
  CHECK(alice.call(credit(1, ~0ULL)).code == "invalid_argument");
  CHECK(alice.call(credit(99, 1)).code == "not_found");
  CHECK(alice.call(close_stream(99)).code == "not_found");
  CHECK(alice.call([](auto r) { r.getBody().initOpenStream().setStreamId(3); }).code ==
        "unsupported");
  CHECK(alice.call(open_output(4, "", 0)).code == "invalid_argument");
  CHECK(alice.call(close_stream(1)).kind == "stream");
  for (std::uint64_t i = 0; i < proto::max_streams; ++i)
    CHECK(alice.call(open_output(100 + i, id, 0)).kind == "stream");
  CHECK(alice.call(open_output(99, id, 0)).code == "capacity");
}

TEST_CASE("a source that is not there is the stream's end") {
  node_fixture node(writes("x"));
  client alice(node, "alice", with_streams);
  const auto id = node.running_sandbox(alice);
  alice.call(open_output(1, id, 1));
  CHECK(pieces(alice, 1).at(0).code == "not_found");
  alice.call(open_output(2, "e0-aaaaaaaaaaaaaaaa", 1));
  CHECK(pieces(alice, 2).at(0).code == "not_found");
  alice.call(open_file(3, id, "/nothing"));
  CHECK(pieces(alice, 3).at(0).code == "not_found");
}

TEST_CASE("streams are only for those who want them") {
  node_fixture node(writes("x"));
  client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  CHECK(alice.call(open_output(1, id, 1)).code == "unsupported");
  CHECK(alice.call(close_stream(1)).code == "unsupported");
}

TEST_CASE("a piece that is not read holds up its own stream, and memory stays one piece") {
  const std::string megabyte(1U << 20U, 'x');
  node_fixture node(writes(megabyte));
  client alice(node, "alice", with_streams);
  const auto id = node.running_sandbox(alice);
  alice.ask(exec(id, "c1", [](auto e) { e.setInlineLimit(1); }));
  alice.session->holds = true;
  alice.call(open_output(1, id, proto::max_stream_credit));
  alice.call(open_output(2, id, proto::max_stream_credit));
  CHECK(together(pieces(alice, 1)).size() == proto::stream_piece_bytes);
  CHECK(together(pieces(alice, 2)).size() == proto::stream_piece_bytes);
  CHECK(alice.call([](auto r) { r.getBody().setPing(); }).kind == "pong");
  CHECK(together(pieces(alice, 1)).size() == proto::stream_piece_bytes);
  alice.session->release();
  node.run();
  CHECK(together(pieces(alice, 1)) == megabyte);
  CHECK(together(pieces(alice, 2)) == megabyte);
}

TEST_CASE("streams that ended unread count until they are read") {
  node_fixture node(writes("x"));
  client alice(node, "alice", with_streams);
  const auto id = node.running_sandbox(alice);
  alice.call(exec(id, "c1"));
  alice.session->holds = true;
  for (std::uint64_t i = 0; i < proto::max_streams; ++i)
    CHECK(alice.call(open_output(1, id, 1)).kind == "stream");
  CHECK(alice.call(open_output(1, id, 1)).code == "capacity");
  alice.session->release();
  node.run();
  CHECK(alice.call(open_output(1, id, 1)).kind == "stream");
}

TEST_CASE("a closed stream sends nothing more") {
  node_fixture node(holding());
  client alice(node, "alice", with_streams);
  const auto id = with_held_command(node, alice);
  alice.call(open_output(1, id, 1000));
  CHECK(alice.call(close_stream(1)).kind == "stream");
  node.backend->write(id, "c1", "abc");
  node.run();
  CHECK(pieces(alice, 1).empty());
}

TEST_CASE("a file is sent whole") {
  node_fixture node;
  client alice(node, "alice", with_streams);
  const auto id = node.running_sandbox(alice);
  const std::string content(300'000, 'f');
  alice.call(write_file(id, "/f", content));
  alice.call(open_file(1, id, "/f"));
  CHECK(together(pieces(alice, 1)) == content);
  CHECK(pieces(alice, 1).back().end == "complete");
  CHECK(pieces(alice, 1).back().total == content.size());
}

TEST_CASE("a client that goes takes its streams with it") {
  node_fixture node(holding());
  client alice(node, "alice", with_streams);
  const auto id = with_held_command(node, alice);
  alice.call(open_output(1, id, 1000));
  const auto session = alice.session;
  const auto sent = session->sent.size();
  alice.disconnect();
  node.backend->write(id, "c1", "abc");
  node.run();
  node.advance(60s, 1s);
  CHECK(session->sent.size() == sent);
}

TEST_CASE("a node that leaves tells streams so") {
  node_fixture node(holding());
  client alice(node, "alice", with_streams);
  const auto id = with_held_command(node, alice);
  alice.call(open_output(1, id, 1000));
  node.leave();
  REQUIRE(pieces(alice, 1).size() == 1);
  CHECK(pieces(alice, 1)[0].code == "unavailable");
}

namespace {

client::fill read_when_there(const std::string& sandbox, std::uint64_t offset,
                             std::uint32_t wait_ms) {
  return [=](proto::Request::Builder r) {
    auto read = r.getBody().initReadOutput();
    read.setSandboxId(sandbox.c_str());
    read.setCommandId("c1");
    read.setOffset(offset);
    read.setLength(100);
    read.setWaitMs(wait_ms);
  };
}

}  // namespace

TEST_CASE("output can be waited for") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = with_held_command(node, alice);
  const auto waits = alice.ask(read_when_there(id, 0, 5000));
  const auto too_short = alice.ask(read_when_there(id, 0, 500));
  CHECK_FALSE(alice.got(waits));
  node.advance(600ms);
  CHECK(alice.got(too_short)->kind == "output");
  CHECK(alice.got(too_short)->out.empty());
  CHECK_FALSE(alice.got(too_short)->ended);
  CHECK_FALSE(alice.got(waits));
  node.backend->write(id, "c1", "abc");
  node.run();
  CHECK(alice.got(waits)->out == "abc");
  const auto until_end = alice.ask(read_when_there(id, 3, 5000));
  fake::fate end;
  end.out = "abc";
  node.backend->finish(id, "c1", end);
  node.run();
  CHECK(alice.got(until_end)->ended);
  CHECK(alice.got(until_end)->total == 3);
}

TEST_CASE("output that comes while it is looked for is not missed") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = with_held_command(node, alice);
  node.copy->held = true;
  const auto waits = alice.ask(read_when_there(id, 0, 5000));
  REQUIRE(node.copy->run_one());  // nothing: it is watched from now on
  node.run();
  node.backend->write(id, "c1", "abc");
  node.run();
  node.copy->held = false;
  node.run();
  CHECK(alice.got(waits)->out == "abc");
}

TEST_CASE("a host that cannot watch output any more says so") {
  bool broken = true;
  auto script = fails_while(broken, "watch_output", "no watch is left");
  script.run = holding().run;
  node_fixture node(script);
  client alice(node, "alice");
  const auto id = with_held_command(node, alice);
  const auto a = alice.call(read_when_there(id, 0, 5000));
  CHECK(a.kind == "error");
  CHECK(a.message == "no watch is left");
}

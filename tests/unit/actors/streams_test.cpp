#include <caf/exit_reason.hpp>
#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "node_fixture.hpp"
#include "proto/limits.hpp"
#include "stream_requests.hpp"

using namespace dsec::test;
using namespace std::chrono_literals;
namespace actors = dsec::actors;
namespace fake = dsec::fake;
namespace proto = dsec::proto;
namespace base = dsec::base;

namespace {

fake::script writes(const std::string& output) {
  return {.run = [output](const dsec::backends::exec_spec&) {
    fake::fate f;
    f.out = output;
    return f;
  }};
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

TEST_CASE("streams that are opened and closed in a loop are bounded by what is asked for them") {
  node_fixture node(holding());
  client alice(node, "alice", with_streams);
  const auto id = with_held_command(node, alice);
  std::size_t opened = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const auto a = alice.call(open_output(1, id, 1));
    if (a.kind != "stream") {
      CHECK(a.code == "capacity");
      continue;
    }
    ++opened;
    alice.call(close_stream(1));
  }
  CHECK(opened == 2 * proto::max_streams);
  node.advance(21s, 1s);  // the sandbox has been asked for long enough
  CHECK(alice.call(open_output(1, id, 1)).kind == "stream");
}

TEST_CASE("a stream that fails before it was found does not count when it is over") {
  node_fixture node(holding());
  client alice(node, "alice", with_streams);
  for (std::uint64_t i = 0; i < 3 * proto::max_streams; ++i) {
    CHECK(alice.call(open_output(1, "e0-aaaaaaaaaaaaaaaa", 1)).kind == "stream");
    CHECK(pieces(alice, 1).back().code == "not_found");
  }
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

TEST_CASE("a revoked key ends its streams, which say why") {
  node_fixture node(holding());
  client alice(node, "alice", with_streams);
  const auto id = with_held_command(node, alice);
  alice.call(open_output(1, id, 1000));
  caf::anon_send(node.slot->get(), actors::keys_revoked{{"k-alice"}});
  node.run();
  REQUIRE(pieces(alice, 1).size() == 1);
  CHECK(pieces(alice, 1)[0].end == "failed");
  CHECK(pieces(alice, 1)[0].code == "unauthenticated");
}

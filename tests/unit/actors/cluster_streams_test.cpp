// Streams of clients of a coordinator, whose sources are on its workers.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "cluster_fixture.hpp"
#include "proto/limits.hpp"
#include "stream_requests.hpp"

using namespace dsec::test;
using namespace std::chrono_literals;
namespace proto = dsec::proto;

namespace {

/// Starts `count` commands that run until they are finished, and follows the output of each.
void follow(client& c, const std::string& id, std::uint64_t count) {
  for (std::uint64_t i = 1; i <= count; ++i) {
    const auto command = "c" + std::to_string(i);
    c.ask(hold(id, command));
    CHECK(c.call(open_output(i, id, 1U << 30U, 0, command)).kind == "stream");
  }
}

}  // namespace

TEST_CASE("streams of commands that are silent for long stay open, and hold up nothing") {
  cluster_fixture c({"w1"}, holding());
  client alice(c, "alice", with_streams);
  const auto id = c.running_sandbox(alice);
  follow(alice, id, 10);
  alice.call(write_file(id, "/f", "content"));
  CHECK(alice.call(read_file(id, "/f")).out == "content");
  c.advance(90s, 500ms);  // longer than a stream waits for any answer
  for (std::uint64_t i = 1; i <= 10; ++i) {
    CHECK(pieces(alice, i).empty());
    c.node("w1").backend->write(id, "c" + std::to_string(i), "abc");
  }
  c.run();
  for (std::uint64_t i = 1; i <= 10; ++i) CHECK(together(pieces(alice, i)) == "abc");
}

TEST_CASE("output that comes to all streams at once does not overfill the link") {
  cluster_fixture c({"w1"}, holding());
  client alice(c, "alice", with_streams);
  const auto id = c.running_sandbox(alice);
  follow(alice, id, proto::max_streams);
  auto& link = *c.workers.at("w1").connector->worker_end;
  link.block(proto::max_peer_queued_bytes / 2);
  const std::string much(proto::stream_piece_bytes, 'x');
  for (std::uint64_t i = 1; i <= proto::max_streams; ++i)
    c.node("w1").backend->write(id, "c" + std::to_string(i), much);
  c.run();
  std::size_t sent = 0;
  for (const auto& f : link.held) sent += f.bytes().size();
  CHECK(sent < proto::max_streams * 1024);
  link.unblock();
  c.run();
  for (std::uint64_t i = 1; i <= proto::max_streams; ++i) CHECK(together(pieces(alice, i)) == much);
}

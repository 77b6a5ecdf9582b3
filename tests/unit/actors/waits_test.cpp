// Requests that wait for output or for a command: what they hold up, and what becomes of them when
// there is no room or nobody to answer.
#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "actors/command_waits.hpp"
#include "actors/output_waits.hpp"
#include "node_fixture.hpp"
#include "proto/limits.hpp"
#include "stream_requests.hpp"

using namespace dsec::test;
using namespace std::chrono_literals;
namespace actors = dsec::actors;
namespace base = dsec::base;
namespace fake = dsec::fake;
namespace proto = dsec::proto;

namespace {

constexpr std::uint32_t for_long = 3'600'000;

/// As many connections as it takes to send `wait` `count` times.
std::vector<std::unique_ptr<client>> crowd(node_fixture& node, std::size_t count,
                                           const client::fill& wait) {
  std::vector<std::unique_ptr<client>> all;
  while (count > 0) {
    auto& one = *all.emplace_back(std::make_unique<client>(node, "alice"));
    for (std::size_t i = 0; i < proto::max_in_flight && count > 0; ++i, --count)
      one.send(wait, for_long);
    node.run();
  }
  return all;
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

TEST_CASE("where the host has no watches left output is looked at every second") {
  bool broken = true;
  auto script = holding();
  script.on_step = [&broken](std::string_view step, const std::string&) -> base::result<void> {
    if (broken && step == "watch_output") return base::fail(base::errc::capacity, "none is left");
    return {};
  };
  node_fixture node(script);
  client alice(node, "alice");
  const auto id = with_held_command(node, alice);
  const auto waits = alice.ask(read_when_there(id, 0, 60'000));
  const auto too_short = alice.ask(read_when_there(id, 0, 500));
  node.advance(600ms);
  CHECK(alice.got(too_short)->out.empty());
  node.backend->write(id, "c1", "abc");
  node.advance(300ms);
  CHECK_FALSE(alice.got(waits));
  node.advance(200ms);
  CHECK(alice.got(waits)->out == "abc");
  const auto later = alice.ask(read_when_there(id, 3, 60'000));
  broken = false;
  node.advance(5s);
  node.backend->write(id, "c1", "def");
  node.run();  // it is watched again
  CHECK(alice.got(later)->out == "def");
}

TEST_CASE("who waits for output holds up neither other reads of the sandbox nor its files") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = with_held_command(node, alice);
  alice.call(write_file(id, "/f", "content"));
  alice.call(exec(id, "c2"));
  std::vector<std::uint64_t> waits;
  for (int i = 0; i < 3; ++i) waits.push_back(alice.ask(read_when_there(id, 0, 60'000)));
  CHECK(alice.call(read_file(id, "/f")).out == "content");
  CHECK(alice.call(read_output(id, "c2")).ended);
  node.backend->write(id, "c1", "abc");
  node.run();
  for (const auto w : waits) CHECK(alice.got(w)->out == "abc");
}

TEST_CASE("output that was waited for comes in small pieces") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = with_held_command(node, alice);
  const auto waits = alice.ask(read_when_there(id, 0, 60'000));
  node.backend->write(id, "c1", std::string(1U << 20U, 'x'));
  node.run();
  CHECK(alice.got(waits)->out.size() == proto::max_waited_output_bytes);
  CHECK_FALSE(alice.got(waits)->ended);
}

TEST_CASE("output that was waited for and finds no room is not there yet") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = with_held_command(node, alice);
  const auto waits = alice.ask(read_when_there(id, 0, 60'000));
  alice.session->queued = proto::max_promised_bytes + proto::max_unpromised_bytes;
  fake::fate end;
  end.out = "abc";
  node.backend->finish(id, "c1", end);
  node.run();
  REQUIRE(alice.got(waits));
  CHECK(alice.got(waits)->kind == "output");
  CHECK(alice.got(waits)->out.empty());
  CHECK_FALSE(alice.got(waits)->ended);  // or the client would not ask again
  alice.read_replies(0);
  const auto again = alice.call(read_when_there(id, 0, 60'000));
  CHECK(again.out == "abc");
  CHECK(again.ended);
}

TEST_CASE("output that was waited for comes where all promises are made and none is kept") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = with_held_command(node, alice);
  std::vector<std::string> silent;
  for (int i = 0; i < 3; ++i) silent.push_back(node.running_sandbox(alice));
  for (const auto& one : silent) alice.call(write_file(one, "/f", "content"));
  node.copy->held = true;
  for (const auto& one : silent) {
    for (int i = 0; i < 2; ++i) alice.ask(read_file(one, "/f"), for_long);
  }
  node.copy->jobs.clear();  // those are never answered
  node.copy->held = false;
  const auto waits = alice.ask(read_when_there(id, 0, 60'000));
  node.backend->write(id, "c1", "abc");
  node.run();
  REQUIRE(alice.got(waits));
  CHECK(alice.got(waits)->out == "abc");
}

TEST_CASE("so many may wait for output of a sandbox, and those that have gone make room") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = with_held_command(node, alice);
  auto others = crowd(node, actors::output_waits::most, read_when_there(id, 0, for_long));
  const auto refused = alice.call(read_when_there(id, 0, 1000));
  CHECK(refused.code == "capacity");
  CHECK(refused.retryable);
  others.pop_back();
  const auto waits = alice.ask(read_when_there(id, 0, 1000));
  CHECK_FALSE(alice.got(waits));
  others.clear();
  // Nothing is read for who will not hear it.
  node.copy->held = true;
  node.backend->write(id, "c1", "abc");
  node.run();
  CHECK(node.copy->jobs.size() == 1);
  node.copy->held = false;
  node.run();
  CHECK(alice.got(waits)->out == "abc");
}

TEST_CASE("so many may wait for commands of a sandbox") {
  node_fixture node(holding());
  client alice(node, "alice");
  const auto id = with_held_command(node, alice);
  auto others = crowd(node, actors::command_waits::most - 1, get_command(id, "c1", for_long));
  CHECK(alice.call(get_command(id, "c1", 1000)).code == "capacity");
  CHECK(alice.call(exec(id, "c2")).code == "capacity");
  CHECK(alice.call(list_commands(id)).ids == std::vector<std::string>{"c1"});  // it did not start
  CHECK(alice.call(get_command(id, "c1")).state == "running");
  SECTION("those that have gone make room") {
    others.pop_back();
    CHECK(alice.call(exec(id, "c2")).state == "ended");
  }
  SECTION("what cannot be waited for can be ended") {
    CHECK(alice.call(kill_command(id, "c1")).state == "ended");
  }
}

TEST_CASE("those who end a command are not without number either") {
  auto deaf = holding();
  deaf.on_step = [](std::string_view step, const std::string&) -> base::result<void> {
    if (step == "kill") return base::fail(base::errc::not_found, "it is still on its way");
    return {};
  };
  node_fixture node(deaf);
  client alice(node, "alice");
  const auto id = with_held_command(node, alice);
  auto others = crowd(node, 2 * actors::command_waits::most - 1, kill_command(id, "c1"));
  CHECK(alice.call(kill_command(id, "c1")).state == "running");
}

// What is large on a link between coordinator and worker: who has how much of it, and until when.
#include <algorithm>
#include <catch2/catch.hpp>

#include "actors/link_share.hpp"
#include "cluster_fixture.hpp"

using namespace dsec::test;
namespace actors = dsec::actors;
namespace proto = dsec::proto;

namespace {

/// exec of a command that runs until it is finished, with so much stdin.
client::fill hold_with_input(const std::string& sandbox, const std::string& command,
                             unsigned bytes) {
  return exec(sandbox, command, [bytes](auto e) {
    e.initArgv(1).set(0, "hold");
    e.initStdin(bytes);
  });
}

long file_operations(cluster_fixture& c, const std::string& worker) {
  const auto steps = c.node(worker).backend->steps();
  return std::count_if(steps.begin(), steps.end(), [](const std::string& s) {
    return s.starts_with("exec ") && s.find(" dsec.") != std::string::npos;
  });
}

}  // namespace

TEST_CASE("a large request is under way until the worker has taken it, not until it is answered") {
  cluster_fixture c({"w1"}, holding());
  client alice(c, "alice");
  const auto id = c.running_sandbox(alice);
  auto whole = std::make_shared<int>(1);
  const std::weak_ptr<int> held = whole;
  capnp::MallocMessageBuilder message;
  auto request = message.initRoot<proto::Request>();
  request.setId(900);
  hold_with_input(id, "first", 1U << 20U)(request);
  alice.raw(proto::frame::from_builder(message).with(std::move(whole)));
  CHECK(alice.call(get_command(id, "first")).state == "running");
  // Its client may send more: nobody holds what it has sent.
  CHECK(held.expired());
  // More than the share of one principal, of commands that all go on.
  std::vector<std::string> running{"first"};
  for (std::size_t sent = 0; sent <= actors::link_share::most_of_one; sent += 8U << 20U) {
    running.push_back("c" + std::to_string(running.size()));
    alice.ask(hold_with_input(id, running.back(), 8U << 20U));
  }
  CHECK(alice.call(list_commands(id)).ids == running);
  CHECK(alice.call(kill_command(id, "first")).kind == "command");
  CHECK(alice.got(900)->state == "ended");
}

TEST_CASE("a large request that its client waits for no more is under way until it is taken") {
  cluster_fixture c({"w1"}, holding());
  client alice(c, "alice"), bob(c, "bob");
  const auto id = c.running_sandbox(alice);
  const auto his = c.running_sandbox(bob);
  auto& pool = *c.node("w1").copy;
  pool.held = true;  // nothing that is large is taken
  constexpr unsigned each = 8U << 20U;
  const auto share = actors::link_share::most_of_one / each;
  for (std::size_t i = 0; i < 2 * share; ++i) {
    const auto late = alice.ask(hold_with_input(id, "c" + std::to_string(i), each), 1000);
    c.advance(std::chrono::seconds(2));
    CHECK(alice.got(late)->code == "deadline_exceeded");
  }
  const auto arrived = pool.jobs.size();
  CHECK(arrived > 0);
  CHECK(arrived <= share);
  bob.ask(hold_with_input(his, "one", each));
  CHECK(pool.jobs.size() == arrived + 1);
  pool.held = false;
  c.run();
  alice.ask(hold_with_input(id, "last", each));
  CHECK(alice.call(get_command(id, "last")).state == "running");
}

TEST_CASE("a principal whose large replies never come keeps the link from no other") {
  cluster_fixture c({"w1"});
  client mallory(c, "mallory"), more(c, "mallory"), alice(c, "alice");
  std::vector<std::string> hers;
  for (int i = 0; i < 8; ++i) hers.push_back(c.running_sandbox(mallory));
  const auto id = c.running_sandbox(alice);
  for (const auto& one : hers) mallory.call(write_file(one, "/f", "content"));
  alice.call(write_file(id, "/f", "content"));
  const auto before = file_operations(c, "w1");
  auto& pool = *c.node("w1").copy;
  pool.held = true;
  for (const auto& one : hers) {
    mallory.ask(read_file(one, "/f"), 3'600'000);
    more.ask(read_file(one, "/f"), 3'600'000);
  }
  const auto share = static_cast<long>(actors::link_share::most_of_one / proto::max_data_bytes);
  CHECK(file_operations(c, "w1") - before > 0);
  CHECK(file_operations(c, "w1") - before <= share);
  pool.jobs.clear();  // those are never answered
  pool.held = false;
  CHECK(alice.call(read_file(id, "/f")).out == "content");
}

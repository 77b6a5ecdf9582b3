// A coordinator and two workers: routing, placement, lists.
#include <algorithm>
#include <catch2/catch.hpp>

#include "base/ids.hpp"
#include "cluster_fixture.hpp"

using namespace dsec::test;
using namespace std::chrono_literals;
namespace base = dsec::base;
namespace proto = dsec::proto;

namespace {

std::string edge_of(const std::string& id) {
  return *base::edge_of(id);
}

}  // namespace

TEST_CASE("clients of a coordinator create, use and stop sandboxes of its workers") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  CHECK(alice.call([](proto::Request::Builder r) { r.getBody().setPing(); }).kind == "pong");
  const auto id = c.running_sandbox(alice);
  CHECK((edge_of(id) == "w1" || edge_of(id) == "w2"));
  const auto ran = alice.call(exec(id, "c1"));
  CHECK(ran.state == "ended");
  CHECK(ran.exit_code == 0);
  CHECK(alice.call(list_commands(id)).ids == std::vector<std::string>{"c1"});
  CHECK(alice.call(write_file(id, "/f", "text")).kind == "file_written");
  CHECK(alice.call(get(id)).phase == "running");
  CHECK(alice.call(stop(id)).phase == "stopped");
  CHECK(c.live("w1") + c.live("w2") == 0);
}

TEST_CASE("an answer has the id that its own client chose, however many ask at once") {
  cluster_fixture c({"w1"});
  client alice(c, "alice");
  client bob(c, "bob");
  const auto a = c.running_sandbox(alice);
  const auto b = c.running_sandbox(bob);
  const auto first = alice.send(get(a));
  const auto second = bob.send(get(b));
  c.run();
  REQUIRE(alice.got(first));
  REQUIRE(bob.got(second));
  CHECK(alice.got(first)->sandbox_id == a);
  CHECK(bob.got(second)->sandbox_id == b);
}

TEST_CASE("sandboxes of others do not exist for a client of a coordinator either") {
  cluster_fixture c({"w1"});
  client alice(c, "alice");
  client bob(c, "bob");
  const auto id = c.running_sandbox(alice);
  CHECK(bob.call(get(id)).code == "not_found");
  CHECK(bob.call(list()).ids.empty());
}

TEST_CASE("creates are spread over the workers, those that no report counts included") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  for (int i = 0; i < 10; ++i) c.running_sandbox(alice);
  CHECK(c.live("w1") == 5);
  CHECK(c.live("w2") == 5);
}

TEST_CASE("an id that names no worker is unknown; one that is no id is said to be none") {
  cluster_fixture c({"w1"});
  client alice(c, "alice");
  const auto unknown = alice.call(get("w9-abcdefghijklmnop"));
  CHECK(unknown.code == "not_found");
  CHECK(unknown.message.find("'w9'") != std::string::npos);
  CHECK(alice.call(get("Nonsense")).code == "invalid_argument");
  CHECK(alice.call(get("w1-abcdefghijklmnop")).code == "not_found");
}

TEST_CASE("a list is of all workers, and names those that are gone") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  std::vector<std::string> ids{c.running_sandbox(alice), c.running_sandbox(alice)};
  auto listed = alice.call(list());
  std::sort(ids.begin(), ids.end());
  std::sort(listed.ids.begin(), listed.ids.end());
  CHECK(listed.ids == ids);
  CHECK(listed.unreachable.empty());
  c.workers.at("w2").connector->unplugged = true;
  c.cut("w2");
  const auto asked = alice.ask(list());
  CHECK_FALSE(alice.got(asked));  // it may be on its way back
  c.advance(6s);
  REQUIRE(alice.got(asked));
  const auto partial = *alice.got(asked);
  CHECK(partial.ids.size() == 1);
  CHECK(edge_of(partial.ids.at(0)) == "w1");
  CHECK(partial.unreachable == std::vector<std::string>{"w2"});
  c.advance(10s);  // nobody waits for one that is lost
  CHECK(alice.call(list()).unreachable == std::vector<std::string>{"w2"});
}

TEST_CASE("a list that is under way when a link is lost is whole") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  c.running_sandbox(alice);
  c.running_sandbox(alice);
  c.node("w1").copy->held = true;
  const auto asked = alice.ask(list());
  c.cut("w1");
  c.node("w1").copy->held = false;
  c.advance(2s);
  REQUIRE(alice.got(asked));
  CHECK(alice.got(asked)->ids.size() == 2);
  CHECK(alice.got(asked)->unreachable.empty());
}

TEST_CASE("images are listed once, with the workers that have them") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  const auto listed = alice.call([](proto::Request::Builder r) { r.getBody().setListImages(); });
  CHECK(listed.ids == std::vector<std::string>{"debian:12"});
  CHECK(listed.edges == std::vector<std::string>{"w1", "w2"});
}

TEST_CASE("an image that no worker has is said by each of them") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  const auto a = alice.call(create([](auto r) { r.setImage("nothing:1"); }));
  CHECK(a.code == "not_found");
  CHECK(a.message.find("w1: no image 'nothing:1'") != std::string::npos);
  CHECK(a.message.find("w2: no image 'nothing:1'") != std::string::npos);
}

TEST_CASE("what a worker refuses for want of room goes to another one") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  // The report says that there is room; a moment later there is none.
  c.node("w1").memory.available = 0;
  for (int i = 0; i < 4; ++i) {
    const auto id = alice.ask(create());
    c.advance(1s);
    REQUIRE(alice.got(id));
    CHECK(alice.got(id)->phase == "running");
  }
  CHECK(c.live("w1") == 0);
  CHECK(c.live("w2") == 4);
}

TEST_CASE("a create that fits nowhere waits, goes wherever room comes, and is refused in the end") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  c.set_memory(0);
  c.advance(2s);
  const auto late = alice.ask(create(), 5000);
  const auto lucky = alice.ask(create(), 60'000);
  c.advance(6s);
  REQUIRE(alice.got(late));
  CHECK(alice.got(late)->code == "capacity");
  CHECK(alice.got(late)->retryable);
  CHECK_FALSE(alice.got(lucky));
  c.node("w2").memory.available = 8ULL << 30U;
  c.advance(5s);
  REQUIRE(alice.got(lucky));
  CHECK(alice.got(lucky)->phase == "running");
  CHECK(c.live("w2") == 1);
}

TEST_CASE("a worker that is unhealthy or stops takes no creates") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  c.node("w1").worker->health->report("store", "cannot be written");
  c.advance(2s);
  for (int i = 0; i < 4; ++i) c.running_sandbox(alice);
  CHECK(c.live("w1") == 0);
  c.node("w1").worker->health->clear("store");
  c.node("w2").worker->health->set_draining();
  c.advance(2s);
  for (int i = 0; i < 4; ++i) c.running_sandbox(alice);
  CHECK(c.live("w1") == 4);
}

TEST_CASE("a coordinator without workers says so, and waits a while for one") {
  cluster_fixture c({});
  client alice(c, "alice");
  const auto refused = alice.ask(create(), 60'000);
  c.advance(11s, 500ms);
  REQUIRE(alice.got(refused));
  CHECK(alice.got(refused)->code == "unavailable");
  CHECK(alice.got(refused)->retryable);
  const auto lucky = alice.ask(create(), 60'000);
  c.advance(2s);
  c.add("w1", "w1", "id-of-w1", c.secret);
  c.advance(1s);
  REQUIRE(alice.got(lucky));
  CHECK(alice.got(lucky)->phase == "running");
}

TEST_CASE("large requests that a worker has not taken wait, and small ones pass") {
  cluster_fixture c({"w1"});
  client alice(c, "alice");
  const auto id = c.running_sandbox(alice);
  auto& link = *c.workers.at("w1").connector->coordinator_end;
  link.block(64U << 20U);
  const auto large = alice.ask(write_file(id, "/f", std::string(1U << 20U, 'x')));
  CHECK(link.held.empty());
  const auto small = alice.ask(get(id));
  CHECK(link.held.size() == 1);
  link.unblock();
  c.run();
  REQUIRE(alice.got(small));
  REQUIRE(alice.got(large));
  CHECK(alice.got(large)->kind == "file_written");
}

TEST_CASE("what is late is answered by the coordinator when the worker does not") {
  cluster_fixture c({"w1"}, holding());
  client alice(c, "alice");
  const auto id = c.running_sandbox(alice);
  c.workers.at("w1").connector->coordinator_end->block(1);
  const auto asked = alice.ask(get(id), 1000);
  c.advance(1500ms);
  REQUIRE(alice.got(asked));
  CHECK(alice.got(asked)->code == "deadline_exceeded");
}

TEST_CASE("more creates than a coordinator keeps are refused, and room is made by those that end") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  c.env->max_creates = 3;
  c.set_memory(0);
  c.advance(2s);
  const auto first = alice.ask(create(), 60'000, "key");
  const auto follower = alice.ask(create(), 60'000, "key");
  const auto short_one = alice.ask(create(), 2000);
  const auto refused = alice.call(create(), 60'000);
  CHECK(refused.code == "capacity");
  CHECK(refused.retryable);
  CHECK(refused.message.find("create queue") != std::string::npos);
  c.advance(3s);
  CHECK(alice.got(short_one)->code == "capacity");
  client bob(c, "bob");
  bob.ask(create(), 60'000);
  CHECK(bob.call(create(), 60'000).code == "capacity");
  bob.disconnect();
  c.set_memory(8ULL << 30U);
  c.advance(10s);
  CHECK(alice.got(first)->phase == "running");
  CHECK(alice.got(follower)->sandbox_id == alice.got(first)->sandbox_id);
  for (int i = 0; i < 5; ++i) c.running_sandbox(alice);
}

TEST_CASE("where many creates fit nowhere, workers are asked for each less often") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  c.env->tries_per_second = 1;
  c.set_memory(0);
  c.advance(2s);
  const auto sent = [&] {
    return c.workers.at("w1").connector->coordinator_end->sent +
           c.workers.at("w2").connector->coordinator_end->sent;
  };
  const auto before = sent();
  for (int i = 0; i < 20; ++i) alice.ask(create(), 60'000);
  c.advance(20s);
  CHECK(sent() - before >= 20);
  CHECK(sent() - before < 150);  // each once a second would be 400
}

TEST_CASE("a create that never left the coordinator does not count on its worker") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  c.workers.at("w1").connector->coordinator_end->block(64U << 20U);
  const auto large = alice.ask(create([](auto r) {
                                 auto one = r.initEnv(1)[0];
                                 one.setName("A");
                                 one.setValue(std::string(100'000, 'x'));
                               }),
                               1000);
  c.advance(2s);
  CHECK(alice.got(large)->code == "deadline_exceeded");
  c.workers.at("w1").connector->coordinator_end->unblock();
  c.advance(2s);
  REQUIRE(c.live("w1") + c.live("w2") == 0);
  c.running_sandbox(alice);  // among equals the first
  CHECK(c.live("w1") == 1);
}

TEST_CASE("a create that a report has overtaken on its worker counts all the same") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  auto& w1 = c.workers.at("w1");
  c.node("w1").copy->held = true;  // a create stays one that waits
  c.advance(2s);                   // and reports are of what was seen before
  // The link's actor finds both in its mailbox, and asks the edge before the create is there.
  w1.frozen = true;
  alice.ask(create(), 60'000);
  w1.frozen = false;
  c.advance(1s, 1s);
  REQUIRE(c.live("w1") + c.live("w2") == 0);
  alice.ask(create(), 60'000);
  c.run();
  CHECK(c.live("w2") == 1);
}

TEST_CASE("creates of one key that a worker answered hide no later ones") {
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  for (int i = 0; i < 4; ++i) alice.send(create(), 0, "key");
  c.run();
  REQUIRE(c.live("w1") + c.live("w2") == 1);
  c.advance(2s);
  for (int i = 0; i < 7; ++i) c.running_sandbox(alice);
  CHECK(c.live("w1") == 4);
  CHECK(c.live("w2") == 4);
}

TEST_CASE("few lists are made at once, the others have their turn") {
  using state = dsec::actors::cluster_state;
  cluster_fixture c({"w1", "w2"});
  client alice(c, "alice");
  c.running_sandbox(alice);
  for (const char* w : {"w1", "w2"}) c.node(w).copy->held = true;
  auto& link = *c.workers.at("w1").connector->coordinator_end;
  const auto before = link.sent;
  std::vector<std::uint64_t> all;
  std::deque<client> clients_;
  for (std::size_t n = 0; n < state::max_lists; ++n) {
    if (n % 3 == 0) clients_.emplace_back(c, "alice");
    all.push_back(clients_.back().ask(list(), 600'000));
  }
  CHECK(link.sent - before <= 2 * state::lists_at_once);  // with the channels that they opened
  const auto refused = alice.call(list());
  CHECK(refused.code == "capacity");
  CHECK(refused.retryable);
  for (const char* w : {"w1", "w2"}) c.node(w).copy->held = false;
  c.run();
  for (std::size_t n = 0; n < all.size(); ++n) {
    const auto got = clients_.at(n / 3).got(all[n]);
    REQUIRE(got);
    CHECK(got->ids.size() == 1);
  }
  CHECK(alice.call(list()).ids.size() == 1);
}

TEST_CASE("a list of many workers asks a few at once and is whole") {
  std::vector<std::string> names;
  for (int i = 10; i < 30; ++i) names.push_back("w" + std::to_string(i));
  cluster_fixture c(names);
  client alice(c, "alice");
  for (int i = 0; i < 20; ++i) c.running_sandbox(alice);
  for (const auto& w : names) c.node(w).copy->held = true;
  const auto sent = [&] {
    std::size_t n = 0;
    for (const auto& [name, w] : c.workers) n += w.connector->coordinator_end->sent;
    return n;
  };
  const auto before = sent();
  const auto asked = alice.ask(list());
  CHECK(sent() - before == dsec::actors::cluster_state::asked_at_once);
  for (const auto& w : names) c.node(w).copy->held = false;
  c.run();
  REQUIRE(alice.got(asked));
  CHECK(alice.got(asked)->ids.size() == 20);
  CHECK(alice.got(asked)->unreachable.empty());
}

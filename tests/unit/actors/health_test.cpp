#include "actors/health.hpp"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "node_fixture.hpp"

using namespace std::chrono_literals;
using dsec::actors::health_board;
using dsec::actors::store_reporter;
namespace base = dsec::base;

TEST_CASE("a node is healthy until somebody says otherwise") {
  health_board board;
  CHECK(board.healthz().good);
  board.report("store", "disk full");
  const auto a = board.healthz();
  CHECK_FALSE(a.good);
  const auto j = nlohmann::json::parse(a.json);
  CHECK(j.at("status") == "unhealthy");
  CHECK(j.at("reasons").at(0).at("subject") == "store");
  CHECK(j.at("reasons").at(0).at("reason") == "disk full");
  board.clear("store");
  CHECK(board.healthz().good);
}

TEST_CASE("a node is ready from its recovery until it drains") {
  health_board board;
  CHECK_FALSE(board.readyz().good);
  board.set_ready(true);
  CHECK(board.readyz().good);
  board.set_draining();
  CHECK_FALSE(board.readyz().good);
}

TEST_CASE("actors that run on time leave no late beats") {
  dsec::test::node_fixture node;
  node.advance(10s);
  CHECK(node.worker->health->late_beats() == 0);
}

TEST_CASE("actors that run late are counted") {
  dsec::test::node_fixture node;
  node.scheduler().advance_time(400ms);  // nobody ran when the beat was due at 250 ms
  node.run();
  CHECK(node.worker->health->late_beats() == 1);
}

TEST_CASE("actor restarts show in the report") {
  dsec::test::node_fixture node;
  dsec::test::client alice(node, "alice");
  const auto id = node.running_sandbox(alice);
  caf::anon_send_exit(node.actor_of(id), caf::exit_reason::kill);
  node.run();
  CHECK(nlohmann::json::parse(node.worker->health->healthz().json).at("actor_restarts") == 1);
}

TEST_CASE("a store that is written again is no reason to be unhealthy any more") {
  const auto board = std::make_shared<health_board>();
  const auto outcome = store_reporter(board);
  outcome(base::fail(base::errc::io, "disk full"));
  CHECK_FALSE(board->healthz().good);
  outcome({});
  CHECK(board->healthz().good);
}

TEST_CASE("actors that do not run at all are a reason to be unhealthy, until they do again") {
  health_board board;
  board.expect_beats(20ms);
  CHECK(board.healthz().good);
  const auto give_up = std::chrono::steady_clock::now() + 10s;
  while (board.healthz().good && std::chrono::steady_clock::now() < give_up) {
  }
  CHECK(board.healthz().json.find("none has run for") != std::string::npos);
  board.expect_beats(1h);
  board.note_beat(0);
  CHECK(board.healthz().good);
}

TEST_CASE("a node whose store fails says so until it is written again") {
  dsec::test::node_fixture node;
  dsec::test::client alice(node, "alice");
  node.records->fail_from_now(true);
  CHECK(alice.call(dsec::test::create()).kind == "error");
  CHECK(node.worker->health->healthz().json.find("disk full") != std::string::npos);
  node.records->fail_from_now(false);
  CHECK(alice.call(dsec::test::create()).phase == "running");
  CHECK(node.worker->health->healthz().good);
}

TEST_CASE("a reason that is no UTF-8 can be told all the same") {
  health_board board;
  board.report("store", "cannot write '/x/\xff'");
  CHECK(board.healthz().json.find("cannot write") != std::string::npos);
}

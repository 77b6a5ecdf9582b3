#include "base/worker_pool.hpp"

#include <atomic>
#include <catch2/catch.hpp>
#include <future>
#include <thread>

#include "support/eventually.hpp"

using namespace std::chrono_literals;
using dsec::base::errc;
using dsec::base::pool_options;
using dsec::base::worker_pool;
using dsec::test::eventually;

TEST_CASE("jobs of one thread run in the order in which they were submitted") {
  std::vector<int> seen;
  std::promise<void> last;  // outlives the pool: set_value may still be at work when it is seen
  {
    worker_pool pool({.name = "one", .threads = 1, .queue_bound = 100});
    for (int i = 0; i < 10; ++i) REQUIRE(pool.submit([&seen, i] { seen.push_back(i); }));
    REQUIRE(pool.submit([&] { last.set_value(); }));
    last.get_future().wait();
  }
  CHECK(seen == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
}

TEST_CASE("a full queue refuses with capacity and names the pool") {
  std::promise<void> running, go;
  const auto gate = go.get_future().share();
  worker_pool pool({.name = "tiny", .threads = 1, .queue_bound = 1});
  REQUIRE(pool.submit([&] {
    running.set_value();
    gate.wait();
  }));
  running.get_future().wait();
  REQUIRE(pool.submit([] {}));
  const auto refused = pool.submit([] {});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == errc::capacity);
  CHECK(refused.error().message.find("'tiny'") != std::string::npos);
  go.set_value();
}

TEST_CASE("a job that hangs is abandoned and counted, and those behind it go on") {
  std::promise<void> go;
  auto gate = go.get_future().share();
  std::atomic<bool> second = false;
  std::atomic<bool> first = false;
  worker_pool pool({.name = "kill", .threads = 1, .queue_bound = 10, .stuck_after = 20ms});
  REQUIRE(pool.submit([&first, gate] {
    gate.wait();
    first = true;
  }));
  REQUIRE(pool.submit([&second] { second = true; }));
  CHECK(eventually([&] { return pool.check().stuck == 1; }));
  CHECK(eventually([&] { return second.load(); }));
  auto health = pool.check();
  CHECK(health.abandoned == 1);
  CHECK(health.oldest >= 20ms);
  go.set_value();
  CHECK(eventually([&] { return first.load() && pool.check().stuck == 0; }));
  CHECK(pool.check().abandoned == 1);
}

TEST_CASE("a pool that ends does not wait for an abandoned job") {
  std::promise<void> go;
  auto gate = go.get_future().share();
  const auto done = std::make_shared<std::atomic<bool>>(false);
  {
    worker_pool pool({.name = "x", .threads = 1, .queue_bound = 10, .stuck_after = 1ms});
    REQUIRE(pool.submit([gate, done] {
      gate.wait();
      *done = true;
    }));
    CHECK(eventually([&] { return pool.check().abandoned == 1; }));
  }
  CHECK_FALSE(*done);
  go.set_value();
  CHECK(eventually([&] { return done->load(); }));
}

TEST_CASE("a job that throws costs only itself") {
  std::promise<void> after;
  worker_pool pool({.name = "x", .threads = 1, .queue_bound = 10});
  REQUIRE(pool.submit([] { throw std::runtime_error("thrown by a test"); }));
  REQUIRE(pool.submit([&] { after.set_value(); }));
  CHECK(after.get_future().wait_for(10s) == std::future_status::ready);
}

TEST_CASE("a pool may end with a job that holds the last reference to it") {
  auto pool =
      std::make_shared<worker_pool>(pool_options{.name = "x", .threads = 1, .queue_bound = 10});
  std::promise<void> go;
  auto gate = go.get_future().share();
  REQUIRE(pool->submit([gate, pool] { gate.wait(); }));
  const std::weak_ptr<worker_pool> seen = pool;
  pool.reset();
  go.set_value();
  CHECK(eventually([&] { return seen.expired(); }));
}

TEST_CASE("a stopped pool takes no more jobs") {
  worker_pool pool({.name = "x", .threads = 2, .queue_bound = 10});
  pool.stop();
  pool.stop();
  CHECK(pool.submit([] {}).error().code == errc::unavailable);
}

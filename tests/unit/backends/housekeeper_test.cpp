#include "backends/container/housekeeper.hpp"

#include <catch2/catch.hpp>
#include <chrono>
#include <future>
#include <vector>

using namespace std::chrono_literals;
using dsec::container::housekeeper;

TEST_CASE("a job for later runs behind those for now, not before its time, and in order of time") {
  housekeeper keeper("test", 0);
  std::promise<void> done;
  std::vector<int> order;
  const auto began = std::chrono::steady_clock::now();
  keeper.post_later(40ms, [&] {
    order.push_back(3);
    done.set_value();
  });
  keeper.post_later(20ms, [&] { order.push_back(2); });
  keeper.post([&] { order.push_back(1); });
  REQUIRE(done.get_future().wait_for(10s) == std::future_status::ready);
  CHECK(std::chrono::steady_clock::now() - began >= 40ms);
  CHECK(order == std::vector<int>{1, 2, 3});
}

TEST_CASE("what is to run later does not hold up a drain or the end") {
  bool ran = false;
  {
    housekeeper keeper("test", 0);
    keeper.post_later(1h, [&] { ran = true; });
    keeper.drain();
    keeper.stop();
  }
  CHECK_FALSE(ran);
}

#include "net/turns.hpp"

#include <catch2/catch.hpp>
#include <future>
#include <string>
#include <vector>

using dsec::net::turns;

TEST_CASE("who has much to do does not keep others waiting, and all is done in its order") {
  std::vector<std::string> done;  // by the one thread
  std::promise<void> gate;
  turns t;
  // Nothing else begins before everything is there.
  t.post("alice", [opened = gate.get_future().share()] { opened.wait(); });
  for (const auto* work : {"a1", "a2", "a3", "a4"})
    t.post("alice", [&done, work] { done.push_back(work); });
  for (const auto* work : {"b1", "b2"}) t.post("bob", [&done, work] { done.push_back(work); });
  t.post("carol", [&done] { done.push_back("c1"); });
  gate.set_value();
  t.join();
  CHECK(done == std::vector<std::string>{"b1", "c1", "a1", "b2", "a2", "a3", "a4"});
}

TEST_CASE("what was posted is done when it is joined") {
  int done = 0;
  {
    turns t;
    for (int i = 0; i < 1000; ++i) t.post(std::to_string(i % 7), [&done] { ++done; });
  }
  CHECK(done == 1000);
}

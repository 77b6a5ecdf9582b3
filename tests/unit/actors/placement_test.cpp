#include "actors/placement.hpp"

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

using namespace dsec::actors;

namespace {

constexpr std::uint64_t gib = 1ULL << 30U;
constexpr std::uint64_t limit = 64ULL << 20U;

candidate idle(std::string edge, std::uint32_t slots = 100) {
  candidate c;
  c.edge = std::move(edge);
  c.load.policy = {slots, gib, 4.0};
  c.load.now.memory = {9 * gib, 9 * gib};
  return c;
}

std::vector<std::string> names(unsigned n) {
  std::vector<std::string> out;
  for (unsigned i = 0; i < n; ++i) out.push_back("w" + std::to_string(i));
  return out;
}

}  // namespace

TEST_CASE("a key has the same workers whoever asks, in whatever order they came") {
  auto edges = names(20);
  const auto first = rendezvous("root", "key-1", edges);
  std::reverse(edges.begin(), edges.end());
  CHECK(rendezvous("root", "key-1", edges) == first);
  CHECK(rendezvous("root", "key-2", edges) != first);
  CHECK(rendezvous("alice", "key-1", edges) != first);
  // Where principal ends and key begins counts.
  CHECK(rendezvous("a", "bc", edges) != rendezvous("ab", "c", edges));
}

TEST_CASE("a worker that comes or goes moves no other one in a key's list") {
  auto edges = names(20);
  auto before = rendezvous("root", "key", edges);
  const auto gone = before[3];
  std::erase(edges, gone);
  std::erase(before, gone);
  CHECK(rendezvous("root", "key", edges) == before);
}

TEST_CASE("keys are spread evenly over workers") {
  std::map<std::string, int> firsts;
  for (int i = 0; i < 8000; ++i)
    ++firsts[rendezvous("root", "k" + std::to_string(i), names(8)).front()];
  CHECK(firsts.size() == 8);
  for (const auto& [edge, n] : firsts) {
    INFO(edge);
    CHECK(n > 850);
    CHECK(n < 1150);
  }
}

TEST_CASE("the least full worker is tried first, by slots or by memory") {
  auto a = idle("a");
  auto b = idle("b");
  auto c = idle("c");
  a.load.now.slots_used = 50;
  b.load.now.slots_used = 10;
  c.load.now.memory.available = 3 * gib;  // three quarters of what it may give are taken
  CHECK(places({a, b, c}, limit) == std::vector<std::string>{"b", "a", "c"});
  CHECK(fullness(c) == Approx(0.75));
}

TEST_CASE("what was sent and is not in a report yet counts, and what waits there") {
  auto a = idle("a");
  auto b = idle("b");
  a.unseen = 1;
  CHECK(places({a, b}, limit).front() == "b");
  b.load.waiting = 2;
  CHECK(places({a, b}, limit).front() == "a");
  // A burst that comes before any report is spread evenly.
  auto x = idle("x");
  auto y = idle("y");
  for (int i = 0; i < 50; ++i) ++(places({x, y}, limit).front() == "x" ? x : y).unseen;
  CHECK(x.unseen == 25);
}

TEST_CASE("workers without room or without the images come last; sick and draining ones never") {
  auto full = idle("full", 4);
  full.load.now.slots_used = 4;
  auto without = idle("without");
  without.has_images = false;
  auto sick = idle("sick");
  sick.healthy = false;
  auto draining = idle("draining");
  draining.load.draining = true;
  CHECK(places({full, without, sick, draining, idle("good")}, limit) ==
        std::vector<std::string>{"good", "full", "without"});
  CHECK(places({sick, draining}, limit).empty());
  CHECK(places({}, limit).empty());
}

TEST_CASE("a worker that has not said anything yet is full") {
  candidate silent;
  silent.edge = "silent";
  CHECK(fullness(silent) >= 1.0);
  CHECK(places({silent, idle("a")}, limit).front() == "a");
}

TEST_CASE("a sandbox that only fits elsewhere goes there") {
  auto small = idle("small");
  small.load.now.memory = {2 * gib, 2 * gib};
  auto big = idle("big");
  big.load.now.slots_used = 90;
  CHECK(places({small, big}, 8 * gib).front() == "big");
  CHECK(places({small, big}, limit).front() == "small");
}

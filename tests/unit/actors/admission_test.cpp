#include "actors/admission.hpp"

#include <catch2/catch.hpp>

using namespace dsec::actors;

namespace {

constexpr std::uint64_t gib = 1ULL << 30U;
constexpr std::uint64_t mib = 1ULL << 20U;

const admission_policy policy{.slots = 10, .reserve_bytes = gib, .overcommit = 4.0};

node_load idle() {
  return {{8 * gib, 7 * gib}, 0, 0, 0};
}

const auto everything_fits = [](std::uint64_t) { return true; };

}  // namespace

TEST_CASE("an idle node admits") {
  CHECK(find_scarce(policy, idle(), 512 * mib) == scarce::nothing);
}

TEST_CASE("limits may add up to more than there is, but not beyond the overcommit factor") {
  auto load = idle();
  load.limits_bytes = 20 * gib;
  CHECK(find_scarce(policy, load, 8 * gib) == scarce::nothing);
  load.limits_bytes = 28 * gib;
  CHECK(find_scarce(policy, load, 1) == scarce::memory_limits);
}

TEST_CASE("the reserve is never given away") {
  auto load = idle();
  load.memory.available = gib + 10 * mib;
  CHECK(find_scarce(policy, load, 512 * mib) == scarce::memory);
  load.memory.available = gib + 16 * mib;
  CHECK(find_scarce(policy, load, 512 * mib) == scarce::nothing);
}

TEST_CASE("a small limit needs no more than itself") {
  auto load = idle();
  load.memory.available = gib + 10 * mib;
  CHECK(find_scarce(policy, load, 10 * mib) == scarce::nothing);
}

TEST_CASE("sandboxes that have just been admitted count before they can be measured") {
  auto load = idle();
  load.memory.available = 2 * gib;
  load.settling_bytes = gib;
  CHECK(find_scarce(policy, load, 512 * mib) == scarce::memory);
}

TEST_CASE("slots run out whatever memory there is") {
  auto load = idle();
  load.slots_used = 10;
  CHECK(find_scarce(policy, load, mib) == scarce::slots);
  CHECK(describe(scarce::slots, policy, load, mib) == "slots: all 10 are taken");
}

TEST_CASE("a limit that no empty node could hold can never fit") {
  CHECK(can_ever_fit(policy, {8 * gib, 0}, 28 * gib));
  CHECK_FALSE(can_ever_fit(policy, {8 * gib, 0}, 29 * gib));
  CHECK_FALSE(can_ever_fit(policy, {gib, 0}, mib));
}

TEST_CASE("principals take turns, each in its own order") {
  admission_queue q(100);
  for (admission_queue::ticket t = 1; t <= 4; ++t) q.push("greedy", t, mib);
  q.push("modest", 10, mib);
  q.push("modest", 11, mib);
  std::vector<admission_queue::ticket> order;
  while (const auto t = q.pop(everything_fits)) order.push_back(*t);
  CHECK(order == std::vector<admission_queue::ticket>{1, 10, 2, 11, 3, 4});
}

TEST_CASE("what does not fit is passed by, but not for ever") {
  admission_queue q(1000);
  q.push("big", 1, gib);
  for (admission_queue::ticket t = 100; t < 100 + 2 * admission_queue::max_passes; ++t)
    q.push("small", t, mib);
  const auto only_small = [](std::uint64_t limit) { return limit < gib; };
  unsigned passed = 0;
  while (q.pop(only_small)) ++passed;
  CHECK(passed == admission_queue::max_passes);
  CHECK(q.pop(everything_fits) == 1U);
}

TEST_CASE("a full queue refuses, a removed create frees its place") {
  admission_queue q(2);
  CHECK(q.push("a", 1, mib));
  CHECK(q.push("b", 2, mib));
  CHECK_FALSE(q.push("c", 3, mib));
  q.remove(1);
  CHECK(q.push("c", 3, mib));
  CHECK(q.size() == 2);
  CHECK(q.pop(everything_fits) == 2U);
  CHECK(q.pop(everything_fits) == 3U);
  CHECK(q.empty());
}

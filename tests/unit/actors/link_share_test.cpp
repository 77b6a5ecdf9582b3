#include "actors/link_share.hpp"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

using dsec::actors::link_share;
namespace proto = dsec::proto;

namespace {

constexpr std::size_t eighth = link_share::most_of_one / 8;

/// Everything that may go now.
std::size_t go(link_share& s) {
  std::size_t n = 0;
  while (s.next()) ++n;
  return n;
}

}  // namespace

TEST_CASE("one principal has a quarter of the link, and goes on as it is let go") {
  link_share s;
  for (std::uint64_t i = 0; i < 20; ++i) s.hold("alice", i, eighth);
  CHECK(go(s) == 8);
  CHECK(s.under_way() == link_share::most_of_one);
  s.release("alice", eighth);
  CHECK(s.next() == 8U);
  CHECK_FALSE(s.next());
  CHECK(s.holds_any());
}

TEST_CASE("whoever has nothing under way may have one, also on a full link") {
  link_share s;
  for (const auto* who : {"a", "b", "c", "d", "e"}) {
    for (std::uint64_t i = 0; i < 20; ++i) s.hold(who, i, eighth);
  }
  go(s);
  CHECK(s.under_way() == proto::max_link_bytes);
  s.hold("victim", 100, link_share::most_of_one);
  s.hold("victim", 101, 1);
  CHECK(s.next() == 100U);
  CHECK_FALSE(s.next());
  s.release("victim", link_share::most_of_one);
  CHECK(s.next() == 101U);
}

TEST_CASE("a crowd of principals cannot have more under way than the link can queue") {
  link_share s;
  constexpr std::size_t each = 8U << 20U;
  std::uint64_t call = 0;
  for (int i = 0; i < 100; ++i) s.hold("p" + std::to_string(i), ++call, each);
  CHECK(go(s) == link_share::most_of_all / each);
  CHECK(s.under_way() < proto::max_peer_queued_bytes);
  s.release("p0", each);
  CHECK(go(s) == 1);
}

TEST_CASE("one that is more than its share goes alone") {
  link_share s;
  s.hold("alice", 1, 2 * link_share::most_of_one);
  s.hold("alice", 2, 1);
  CHECK(s.next() == 1U);
  CHECK_FALSE(s.next());
  s.release("alice", 2 * link_share::most_of_one);
  CHECK(s.next() == 2U);
}

TEST_CASE("principals take turns on a link, each in its own order") {
  link_share s;
  for (std::uint64_t i = 1; i <= 3; ++i) s.hold("alice", i, 1);
  for (std::uint64_t i = 11; i <= 12; ++i) s.hold("bob", i, 1);
  std::vector<std::uint64_t> order;
  while (const auto call = s.next()) order.push_back(*call);
  CHECK(order == std::vector<std::uint64_t>{1, 11, 2, 12, 3});
}

TEST_CASE("nothing is left of who has nothing") {
  link_share s;
  s.hold("alice", 1, 10);
  s.hold("alice", 2, 10);
  s.drop("alice", 2);
  s.drop("alice", 2);
  s.drop("nobody", 1);
  CHECK(s.next() == 1U);
  CHECK_FALSE(s.holds_any());
  CHECK(s.principals() == 1);
  s.release("alice", 10);
  CHECK(s.principals() == 0);
  CHECK(s.under_way() == 0);
  s.release("alice", 10);  // it is gone
  CHECK(s.under_way() == 0);
}

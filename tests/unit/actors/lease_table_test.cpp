#include "actors/lease_table.hpp"

#include <catch2/catch.hpp>
#include <optional>

using namespace std::chrono_literals;
using dsec::actors::lease;
using dsec::actors::lease_table;

namespace {

struct leases {
  lease_table::time_point now{1000s};
  std::shared_ptr<lease_table> table = std::make_shared<lease_table>([this] { return now; });
  leases() { table->open(); }

  std::optional<lease_table::time_point> ends(const std::string& principal, const lease& l) {
    return table->ends(principal, l);
  }
};

const lease short_one{"l", 10'000};

}  // namespace

TEST_CASE("a lease lives while a connection with it is open, and its time after the last") {
  leases t;
  auto first = t.table->hold("alice", short_one);
  auto second = t.table->hold("alice", short_one);
  t.now += 1h;
  CHECK_FALSE(t.ends("alice", short_one));
  first.let_go();
  t.now += 1h;
  CHECK_FALSE(t.ends("alice", short_one));
  second.let_go();
  CHECK(t.ends("alice", short_one) == t.now + 10s);
}

TEST_CASE("a client that comes back in time has lost nothing") {
  leases t;
  t.table->hold("alice", short_one).let_go();
  t.now += 9s;
  const auto back = t.table->hold("alice", short_one);
  t.now += 100s;
  CHECK_FALSE(t.ends("alice", short_one));
}

TEST_CASE("a lease that nobody has held yet counts from when somebody could have held it") {
  lease_table::time_point now{1000s};
  const auto table = std::make_shared<lease_table>([&] { return now; });
  CHECK_FALSE(table->ends("alice", short_one));
  now += 1h;  // a long take-over
  CHECK_FALSE(table->ends("alice", short_one));
  table->open();
  const auto opened = now;
  now += 3s;
  CHECK(table->ends("alice", short_one) == opened + 10s);
  CHECK(table->ends("alice", {"other", 5000}) == opened + 5s);
}

TEST_CASE("leases of one name are different ones for different principals") {
  leases t;
  const auto hers = t.table->hold("alice", short_one);
  CHECK_FALSE(t.ends("alice", short_one));
  CHECK(t.ends("bob", short_one));
}

TEST_CASE("a holder that is moved from or assigned to lets go once") {
  leases t;
  auto a = t.table->hold("alice", short_one);
  auto b = std::move(a);
  a.let_go();
  CHECK_FALSE(t.ends("alice", short_one));
  b = t.table->hold("alice", {"other", 5000});
  CHECK(t.ends("alice", short_one));
  CHECK_FALSE(t.ends("alice", {"other", 5000}));
}

TEST_CASE("a holder may outlive everybody else's interest in the table") {
  leases t;
  auto held = t.table->hold("alice", short_one);
  t.table.reset();
  held.let_go();
}

TEST_CASE("leases that ended long ago are not kept, and still count as ended") {
  leases t;
  for (int i = 0; i < 1000; ++i) {
    t.table->hold("alice", {"l" + std::to_string(i), 1000}).let_go();
    t.now += 100ms;
  }
  CHECK(t.table->size() <= 12);
  CHECK(*t.ends("alice", {"l0", 1000}) <= t.now);
}

TEST_CASE("how long one lease is remembered is nothing to the others") {
  leases t;
  auto day = t.table->hold("alice", {"a day", 86'400'000});
  CHECK_FALSE(t.ends("alice", {"a day", 86'400'000}));  // something is bound to it
  day.let_go();
  const auto gone = t.now;
  for (int i = 0; i < 1000; ++i) {
    t.table->hold("alice", {"l" + std::to_string(i), 1000}).let_go();
    t.now += 100ms;
  }
  CHECK(t.table->size() <= 13);
  CHECK(t.ends("alice", {"a day", 86'400'000}) == gone + 24h);
}

TEST_CASE("of leases that nothing is bound to few are kept, however long they are") {
  leases t;
  for (int i = 0; i < 2000; ++i) {
    t.table->hold("alice", {"l" + std::to_string(i), 86'400'000}).let_go();
    t.now += 100ms;
  }
  CHECK(t.table->size() <= 602);
  // What its client had under way may be bound to it a little later.
  CHECK(t.ends("alice", {"l1999", 86'400'000}) == t.now - 100ms + 24h);
  t.now += 1h;
  t.table->hold("alice", {"other", 1000}).let_go();
  CHECK(t.ends("alice", {"l1999", 86'400'000}) == t.now - 1h - 100ms + 24h);
}

TEST_CASE("asking again and again for leases that have ended keeps none of them") {
  leases t;
  t.now += 1h;
  for (int i = 0; i < 1000; ++i) {
    CHECK(*t.ends("alice", {"l" + std::to_string(i), 1000}) <= t.now);
    t.now += 100ms;
  }
  CHECK(t.table->size() <= 1);
}

TEST_CASE("a lease is remembered for the longest time that anybody asks with") {
  leases t;
  // Bound before a restart with more time than its client names now.
  CHECK(t.ends("alice", {"l", 60'000}));
  t.now += 50s;
  t.table->hold("alice", {"l", 1000}).let_go();
  const auto gone = t.now;
  t.now += 30s;
  static_cast<void>(t.table->hold("alice", {"other", 1000}));
  CHECK(t.ends("alice", {"l", 60'000}) == gone + 60s);
}

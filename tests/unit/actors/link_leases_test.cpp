#include "actors/link_leases.hpp"

#include <catch2/catch.hpp>

using namespace std::chrono_literals;
using dsec::actors::lease;
using dsec::actors::lease_table;
using dsec::actors::link_leases;

namespace {

const lease second{"l", 1000};

struct worker {
  explicit worker(const std::vector<std::string>& coordinators = {"a"})
      : links(table, coordinators) {}

  /// Time passes, in steps of a second.
  void pass(std::chrono::seconds time) {
    for (; time > 0s; time -= 1s) {
      now += 1s;
      links.look(now);
    }
  }
  void stands(const std::string& who = "a") { links.link_stands(who, now); }
  void lost(const std::string& who = "a") { links.link_lost(who, now); }
  [[nodiscard]] bool held() { return !table->ends("alice", second); }

  lease_table::time_point now{1000s};
  std::shared_ptr<lease_table> table = std::make_shared<lease_table>([this] { return now; });
  link_leases links;
};

}  // namespace

TEST_CASE("what was held when a link was lost is held until 30 s after the next one stands") {
  worker w;
  w.stands();
  w.links.hold("a", "alice", second);
  w.pass(100s);
  CHECK(w.held());
  w.lost();
  w.pass(299s);
  CHECK(w.held());
  w.stands();
  w.pass(29s);
  CHECK(w.held());
  SECTION("its client does not come back") {
    w.pass(2s);
    CHECK_FALSE(w.held());
  }
  SECTION("its client comes back") {
    w.links.hold("a", "alice", second);
    w.pass(100s);
    CHECK(w.held());
    w.links.release("a", "alice", second);
    CHECK_FALSE(w.held());
  }
}

TEST_CASE("what was held when a link was lost is let go when no other one comes") {
  worker w;
  w.stands();
  w.links.hold("a", "alice", second);
  w.lost();
  w.pass(299s);
  CHECK(w.held());
  w.pass(1s);
  CHECK_FALSE(w.held());
}

TEST_CASE("a link that stands for a moment does not use up the time of those who cannot be back") {
  worker w;
  w.stands();
  w.links.hold("a", "alice", second);
  w.lost();
  w.pass(10s);
  w.stands();
  w.pass(1s);
  w.lost();  // before anybody has come back over it
  w.pass(180s);
  CHECK(w.held());
  w.stands();
  w.pass(28s);
  CHECK(w.held());
  w.pass(2s);
  CHECK_FALSE(w.held());
}

TEST_CASE("links that come and go keep nobody's lease for ever") {
  worker w;
  w.stands();
  w.links.hold("a", "alice", second);
  w.lost();
  for (int i = 0; i < 100; ++i) {
    w.pass(6s);
    w.stands();
    w.lost();
  }
  w.pass(1s);
  CHECK_FALSE(w.held());
}

TEST_CASE("leases count once all coordinators have been there, or one is waited for in vain") {
  worker w({"a", "b"});
  w.pass(1000s);
  w.stands("a");
  w.pass(200s);
  CHECK(w.held());  // its client may be waiting for b
  SECTION("the other one comes") {
    w.stands("b");
    CHECK(w.table->ends("alice", second) == w.now + 1s);
  }
  SECTION("it does not") {
    w.pass(99s);
    CHECK(w.held());
    w.pass(1s);
    CHECK(w.table->ends("alice", second) == w.now + 1s);
  }
}

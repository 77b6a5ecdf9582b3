#include "auth/gate.hpp"

#include <catch2/catch.hpp>
#include <set>

#include "auth/api_key.hpp"
#include "base/secret.hpp"

using namespace dsec::auth;
using namespace std::chrono_literals;

namespace {

known_key key(const std::string& id, const std::string& principal, const std::string& secret) {
  return {id, principal, hash_of(secret)};
}

}  // namespace

TEST_CASE("keys are random, long enough, and known by SHA-256") {
  std::set<std::string> made;
  for (int i = 0; i < 100; ++i) made.insert(new_api_key());
  CHECK(made.size() == 100);
  CHECK(made.begin()->size() == 5 + 32);  // 160 bits at 5 a character
  CHECK(made.begin()->starts_with("dsec_"));
  CHECK(hash_of("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(dsec::base::same_secret(hash_of("abc"), hash_of("abc")));
  CHECK_FALSE(dsec::base::same_secret(hash_of("abc"), hash_of("abd")));
  CHECK_FALSE(dsec::base::same_secret("", ""));
}

TEST_CASE("a key lets its principal in until it is gone") {
  gate g({key("k1", "alice", "one"), key("k2", "bob", "two")});
  REQUIRE(g.by_key("two"));
  CHECK(g.by_key("two")->principal == "bob");
  CHECK(g.by_key("two")->key_id == "k2");
  for (const char* wrong : {"", "thre", "one ", "k1"}) CHECK_FALSE(g.by_key(wrong));
  CHECK_FALSE(g.by_key(hash_of("one")));

  CHECK(g.set_keys({key("k1", "alice", "one"), key("k3", "eve", "three")}) ==
        std::vector<std::string>{"k2"});
  CHECK_FALSE(g.by_key("two"));
  CHECK(g.by_key("one"));
  CHECK(g.by_key("three"));
  CHECK(g.holds("k1"));
  CHECK_FALSE(g.holds("k2"));
}

TEST_CASE("a ticket is good once, for its time, and as long as its key") {
  std::chrono::steady_clock::time_point now{};
  gate g({key("k1", "alice", "one")}, [&] { return now; });
  const identity alice{"alice", "k1"};
  const auto first = g.new_ticket(alice).value();
  const auto second = g.new_ticket(alice).value();
  const auto third = g.new_ticket(alice).value();
  CHECK_FALSE(g.by_ticket("unknown"));
  CHECK_FALSE(g.by_ticket(""));
  REQUIRE(g.by_ticket(first));
  CHECK_FALSE(g.by_ticket(first));

  now += ticket_book::lifetime - 1ms;
  const auto who = g.by_ticket(second);
  REQUIRE(who);
  CHECK(who->principal == "alice");
  now += 1ms;
  CHECK_FALSE(g.by_ticket(third));

  const auto orphan = g.new_ticket(alice).value();
  g.set_keys({});
  CHECK_FALSE(g.by_ticket(orphan));
}

TEST_CASE("unused tickets are bounded: of a key, so that others get some, and altogether") {
  std::chrono::steady_clock::time_point now{};
  ticket_book book([&] { return now; });
  for (std::size_t i = 0; i < ticket_book::most_of_a_key; ++i) REQUIRE(book.issue({"a", "k1"}));
  const auto refused = book.issue({"a", "k1"});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == dsec::base::errc::capacity);
  for (std::size_t i = ticket_book::most_of_a_key; i < ticket_book::most; ++i)
    REQUIRE(book.issue({"b", "k" + std::to_string(2 + i / ticket_book::most_of_a_key)}));
  CHECK_FALSE(book.issue({"c", "another"}));
  now += ticket_book::lifetime;
  CHECK(book.issue({"a", "k1"}));
}

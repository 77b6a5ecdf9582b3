// The reaper alone, on virtual time, with an edge that only counts.
#include "actors/reaper.hpp"

#include <caf/actor_system.hpp>
#include <caf/scheduler/test_coordinator.hpp>
#include <caf/send.hpp>
#include <catch2/catch.hpp>

#include "actors/runtime.hpp"

using namespace dsec::actors;
using namespace std::chrono_literals;
namespace base = dsec::base;

namespace {

struct reaper_fixture {
  reaper_fixture() {
    runtime.set("scheduler.policy", caf::atom("testing"));
    system = std::make_unique<caf::actor_system>(runtime);
    // With an argument: of none, CAF 0.17 binds a reference to a null pointer, as UBSan sees.
    edge = system->spawn(
        [](reaper_parent::pointer, reaper_fixture* fixture) -> reaper_parent::behavior_type {
          return {[fixture](const sandbox_due& m) { fixture->due.push_back(m.due); }};
        },
        this);
    leases = std::make_shared<lease_table>([this] { return scheduler().clock().now(); });
    leases->open();
    who = system->spawn(reaper, edge, leases);
    scheduler().run();
  }
  ~reaper_fixture() {
    caf::anon_send_exit(who, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(edge, caf::exit_reason::user_shutdown);
    scheduler().run();
  }
  caf::scheduler::test_coordinator& scheduler() {
    return dynamic_cast<caf::scheduler::test_coordinator&>(system->scheduler());
  }
  void advance(std::chrono::seconds time) {
    for (; time > 0s; time -= 1s) {
      scheduler().advance_time(1s);
      scheduler().run();
    }
  }

  runtime_config runtime;
  std::unique_ptr<caf::actor_system> system;
  std::vector<sandbox_due::what> due;
  std::shared_ptr<lease_table> leases;
  reaper_parent edge;
  reaper_actor who;
};

sandbox_record limited(std::uint32_t seconds) {
  sandbox_record r;
  r.id = "e0-a";
  r.phase = base::phase::running;
  r.spec.absolute_ttl_seconds = seconds;
  return r;
}

/// Tells when the memory is given back, which a weak pointer keeps from happening.
template <class T>
struct watched_allocator {
  using value_type = T;
  bool* freed;
  explicit watched_allocator(bool* f) : freed(f) {}
  template <class U>
  watched_allocator(const watched_allocator<U>& other) : freed(other.freed) {}
  T* allocate(std::size_t n) { return std::allocator<T>().allocate(n); }
  void deallocate(T* p, std::size_t n) {
    *freed = true;
    std::allocator<T>().deallocate(p, n);
  }
};

}  // namespace

TEST_CASE("the end of a sandbox's time is told until it has ended") {
  reaper_fixture f;
  const auto book = std::make_shared<ledger>(limited(10));
  caf::anon_send(f.who, watch_sandbox{"e0-a", book, f.scheduler().clock().now()});
  f.advance(9s);
  CHECK(f.due.empty());
  f.advance(2s);
  CHECK(f.due.size() == 1);
  f.advance(10s);
  CHECK(f.due.size() == 3);
  book->record.phase = base::phase::stopped;
  book->status.publish(std::make_shared<const sandbox_record>(book->record));
  f.advance(60s);
  CHECK(f.due.size() == 3);
}

TEST_CASE("the limits of a sandbox that has ended keep nothing of it") {
  bool freed = false;
  reaper_fixture f;
  {
    auto record = limited(1'000'000);
    record.spec.idle_ttl_seconds = 1'000'000;
    const auto book =
        std::allocate_shared<ledger>(watched_allocator<ledger>(&freed), std::move(record));
    caf::anon_send(f.who, watch_sandbox{"e0-a", book, f.scheduler().clock().now()});
    f.scheduler().run();
  }
  CHECK_FALSE(freed);
  caf::anon_send(f.who, retain_sandbox{"e0-a", 10s});
  f.scheduler().run();
  CHECK(freed);
  f.advance(11s);
  CHECK(f.due == std::vector{sandbox_due::what::retention});
}

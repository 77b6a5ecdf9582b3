// Time limits of sandboxes: absolute and idle time to live, the leases they are bound to, and how
// long records of ended ones are kept. Tells the edge what is due and leaves the deed to it. One
// per edge, which starts it anew when it dies and tells it all sandboxes again. What is due is told
// again until it was done. Sleeps until the earliest limit: no polling.
#pragma once

#include <caf/typed_event_based_actor.hpp>
#include <chrono>
#include <map>
#include <string>
#include <unordered_map>

#include "actors/alarm.hpp"
#include "actors/interfaces.hpp"

namespace dsec::actors {

using reaper_self = reaper_actor::extend<caf::reacts_to<alarm_rang>>;

struct reaper_state {
  static constexpr const char* name = "reaper";
  /// After so long the edge is told once more of a sandbox whose time is over and that still lives:
  /// the actor that was to end it may have died over it.
  static constexpr std::chrono::seconds ask_again{5};

  struct entry {
    sandbox_due::what due;
    std::string id;
    std::weak_ptr<ledger> book;  // limits: does it live, when was it used last
  };

  reaper_self::pointer self;
  reaper_parent parent;
  std::shared_ptr<lease_table> leases;
  std::multimap<time_point, entry> entries;
  // Where the time limits of a living sandbox stand among them.
  std::unordered_multimap<std::string, std::multimap<time_point, entry>::iterator> limits;
  alarm next;

  explicit reaper_state(reaper_self::pointer s) : self(s) {}

  void watch(const watch_sandbox& m);
  void watch_lease_of(const watch_lease& m);
  void retain(const retain_sandbox& m);
  void on_alarm(const alarm_rang& rang);

 private:
  void add(time_point at, entry e);
  void drop_limits(const std::string& id);
  void take_out(std::multimap<time_point, entry>::iterator at);
  void look(const entry& e, time_point now);
  void look_idle(const entry& e, const ledger_ptr& book, time_point now);
  void look_lease(const entry& e, const ledger_ptr& book, time_point now);
};

reaper_self::behavior_type reaper(reaper_self::stateful_pointer<reaper_state> self,
                                  reaper_parent parent, std::shared_ptr<lease_table> leases);

}  // namespace dsec::actors

// Time limits of sandboxes: absolute and idle time to live, and how long records of ended ones are
// kept. Tells the edge what is due and leaves the deed to it. One per edge, which starts it anew
// when it dies and tells it all sandboxes again. Sleeps until the earliest limit: no polling.
#pragma once

#include <caf/typed_event_based_actor.hpp>
#include <map>
#include <string>

#include "actors/alarm.hpp"
#include "actors/interfaces.hpp"

namespace dsec::actors {

using reaper_self = reaper_actor::extend<caf::reacts_to<alarm_rang>>;

struct reaper_state {
  static constexpr const char* name = "reaper";

  struct entry {
    sandbox_due::what due;
    std::string id;
    std::weak_ptr<ledger> book;  // idle limits: when was it used last
  };

  reaper_self::pointer self;
  reaper_parent parent;
  std::multimap<time_point, entry> entries;
  alarm next;

  explicit reaper_state(reaper_self::pointer s) : self(s) {}

  void watch(const watch_sandbox& m);
  void retain(const retain_sandbox& m);
  void on_alarm(const alarm_rang& rang);

 private:
  void add(time_point at, entry e);
  void look(const entry& e, time_point now);
  void look_idle(const entry& e, const ledger_ptr& book, time_point now);
};

reaper_self::behavior_type reaper(reaper_self::stateful_pointer<reaper_state> self,
                                  reaper_parent parent);

}  // namespace dsec::actors

// The leases that a worker's coordinators say are held. When a link is lost they are kept for a
// while: a coordinator that was started again knows of none until its clients are back, and that
// ends no client's sandboxes. Belongs to the worker, not to an uplink, so that it outlives one.
// Thread-safe.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "actors/lease_table.hpp"

namespace dsec::actors {

class link_leases {
 public:
  using time_point = lease_table::time_point;

  /// Of clients that were there when a link was lost: how long their leases are held while the next
  /// one stands, for them to come back over it; while none does; and in all, links that come and go
  /// included.
  static constexpr std::chrono::seconds grace{30};
  static constexpr std::chrono::seconds longest_grace{300};
  static constexpr std::chrono::seconds longest_in_all{600};

  link_leases(std::shared_ptr<lease_table> table, const std::vector<std::string>& coordinators);

  void link_stands(const std::string& coordinator, time_point now);
  /// Nothing happens when it does not stand.
  void link_lost(const std::string& coordinator, time_point now);
  void hold(const std::string& coordinator, const std::string& principal, const lease& l);
  void release(const std::string& coordinator, const std::string& principal, const lease& l);
  /// To be called every second or so: lets go of what is over. Opens the table, once every
  /// coordinator has been there: only then all clients can have come back. One that does not come
  /// is waited for as long as for a link.
  void look(time_point now);

 private:
  using holders = std::map<std::pair<std::string, std::string>, lease_table::holder>;
  struct kept {
    time_point lost;
    time_point until;
    std::chrono::nanoseconds left;  // while a link stands
    holders leases;
  };
  struct of_coordinator {
    bool stands = false;
    bool has_stood = false;
    holders held;
    std::vector<kept> lost;
  };

  void open_in_time(time_point now);

  const std::shared_ptr<lease_table> table_;
  std::mutex mutex_;
  std::map<std::string, of_coordinator> coordinators_;
  std::optional<time_point> first_stood_;
  bool open_ = false;
};

}  // namespace dsec::actors

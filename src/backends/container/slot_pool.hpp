// Numbered slots 0 .. max-1. A slot is a uid range, fresh groups, fresh namespaces and a fresh
// directory; a few are kept ready, so that a create finds them made. Nothing of a slot but its
// number is ever used twice. A number is free again when give_back() is called: after a stop is
// complete, and never before. Thread-safe; take() and refill() block.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <set>

#include "backends/container/cgroups.hpp"
#include "backends/container/launcher.hpp"
#include "backends/container/trash.hpp"
#include "base/config.hpp"

namespace dsec::container {

struct slot {
  std::uint32_t number = 0;
  std::uint64_t generation = 0;  // of the launcher that holds its namespaces
  slot_groups groups;
};

class slot_pool {
 public:
  /// Numbers whose groups are there already, left by an earlier run, are not used.
  slot_pool(const cgroup_tree& groups, launcher& host, trash& bin, const base::paths& paths,
            const base::node_config& node, const backends::limits& expected);

  /// errc::capacity when all numbers are in use.
  base::result<slot> take();
  /// Drops namespaces and directory if no sandbox took them over, removes the groups, frees the
  /// number.
  base::result<void> give_back(slot& s);
  /// What an earlier run left of a slot is gone: its number can be used.
  void free(std::uint32_t number);
  /// Makes slots until as many are ready as configured.
  base::result<void> refill();
  /// Drops all ready slots; refill() makes none from now on.
  base::result<void> drain();
  /// How many are ready.
  [[nodiscard]] std::uint32_t ready();

 private:
  std::optional<slot> take_ready();
  base::result<slot> make_next();
  base::result<slot> make(std::uint32_t number);
  base::result<void> make_namespaces(slot& s);
  base::result<std::uint32_t> reserve();
  void set_aside(std::uint32_t number);

  const cgroup_tree& groups_;
  launcher& host_;
  trash& trash_;
  base::paths paths_;
  base::node_config node_;
  backends::limits expected_;  // already set on ready slots: most creates ask for the defaults
  std::mutex refill_mutex_;    // one refill at a time
  std::mutex mutex_;
  std::set<std::uint32_t> free_;
  std::deque<std::uint32_t> doubtful_;  // could not be made: taken when no other is free
  std::deque<slot> ready_;
  bool draining_ = false;
};

}  // namespace dsec::container

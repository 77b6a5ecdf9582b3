// The sandboxes of this worker, and which idempotency key made which. Outlives the edge actor: the
// root owns it and hands it to the next edge when one dies, so that no live instance is lost with
// an actor. Only the edge touches it.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/interfaces.hpp"
#include "actors/restart_budget.hpp"
#include "actors/worker.hpp"

namespace dsec::actors {

struct edge_entry {
  ledger_ptr book;
  sandbox_actor actor;  // empty: nobody has asked yet for one of an earlier process
  restart_budget restarts;
  bool live = true;         // holds a slot and memory: admitted, and not yet released
  bool given_up = false;    // its actor crashed too often
  bool withdrawn = false;   // by its key, which still finds it, but a create makes a new one
  bool taken_over = false;  // from an earlier process, and no edge has seen it yet
  time_point admitted;
  std::uint64_t settling_bytes = 0;  // counted in admission until its own use shows
};

struct used_key {
  std::string sandbox_id;
  std::string body_hash;
};

struct edge_table {
  /// Principal and idempotency key of a create.
  using key = std::pair<std::string, std::string>;

  std::map<std::string, edge_entry, std::less<>> sandboxes;
  std::map<key, used_key> keys;
  std::deque<std::string> ended;  // in order of ending; may name forgotten ones
};

}  // namespace dsec::actors

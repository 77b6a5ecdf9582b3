// Requests that wait for a command: until it runs, until it has ended, or until their time is over.
// Bounded: a client can go and come back without end, and what waits for one that is gone is
// dropped when its place is needed. Belongs to one sandbox actor's state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/command_table.hpp"
#include "actors/waiter.hpp"

namespace dsec::actors {

struct command_wait {
  waiter who;
  bool until_started = false;    // exec without wait: answered as soon as it runs
  bool state_when_late = false;  // getCommand: at `who.deadline` the state is the answer, no error
  std::uint32_t inline_limit = 0;
};

class command_waits {
 public:
  /// Of one sandbox.
  static constexpr std::size_t most = command_table::max_results;

  command_waits() = default;
  /// Tells everybody that the actor goes down.
  ~command_waits();
  command_waits(const command_waits&) = delete;
  command_waits& operator=(const command_waits&) = delete;

  /// Whether one more may wait where there are `limit` at most.
  [[nodiscard]] bool has_room(std::size_t limit = most);
  void add(const std::string& command_id, command_wait w);
  /// Who has waited long enough for a command in this state.
  std::vector<command_wait> ready(const command& c);
  /// Whose time is over, by command id.
  std::vector<std::pair<std::string, command_wait>> late(time_point at);
  /// The earliest deadline.
  [[nodiscard]] time_point earliest() const;
  [[nodiscard]] std::size_t size() const { return size_; }

 private:
  /// Takes those out of which `is_it` holds.
  template <class F>
  std::vector<std::pair<std::string, command_wait>> take(F&& is_it);

  std::unordered_map<std::string, std::vector<command_wait>> waiting_;  // by command id
  std::size_t size_ = 0;
};

}  // namespace dsec::actors

// Requests for output that wait until there is some. One is either being read for (on the copy
// pool) or parked until its stream grows, its command ends or its time is over. A stream is watched
// only while somebody waits for it, once for all who do. Bounded: a client can go and come back
// without end, and what waits for one that is gone is dropped when its place is needed. Belongs to
// one sandbox actor's state.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "actors/waiter.hpp"
#include "backends/backend.hpp"

namespace dsec::actors {

/// What is asked for.
struct output_range {
  std::string command_id;
  backends::stream which = backends::stream::out;
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
};

struct output_wait {
  waiter who;  // until when it waits: who.deadline
  output_range of;
  std::uint64_t watch = 0;                 // that was in place when it was read for; 0 = none
  std::optional<time_point> look_again{};  // its stream cannot be watched
};

class output_waits {
 public:
  /// Of one sandbox.
  static constexpr std::size_t most = 1024;

  output_waits() = default;
  /// Tells everybody that the actor goes down.
  ~output_waits();
  output_waits(const output_waits&) = delete;
  output_waits& operator=(const output_waits&) = delete;

  /// Whether one more may wait.
  [[nodiscard]] bool has_room();
  /// It is read for: what take() will be told.
  std::uint64_t reading(output_wait w);
  /// What is read for under this token, which is not any more.
  std::optional<output_wait> take(std::uint64_t token);
  void park(output_wait w);

  /// The watch that is in place for the stream; 0 = none.
  [[nodiscard]] std::uint64_t watch(const output_range& of) const;
  /// There is one now.
  void watched(const output_range& of);
  /// The stream has grown, and its watch is gone: who waited for it.
  std::vector<output_wait> grown(const std::string& command_id, backends::stream which);
  /// The command has ended.
  std::vector<output_wait> ended(const std::string& command_id);
  /// Whose time is over.
  std::vector<output_wait> late(time_point at);
  /// Whose streams cannot be watched: those that are due to be read again.
  std::vector<output_wait> to_look_at(time_point at);
  /// When the first of those that are parked is late, or due to be read again.
  [[nodiscard]] time_point earliest() const;
  [[nodiscard]] std::size_t size() const { return read_for_.size() + parked_count_; }

 private:
  using key = std::string;
  static key key_of(const std::string& command_id, backends::stream which);
  /// Takes those out of what is parked of which `is_it` holds.
  template <class F>
  std::vector<output_wait> take_parked(F&& is_it);

  std::unordered_map<std::uint64_t, output_wait> read_for_;  // by token
  std::unordered_map<key, std::vector<output_wait>> parked_;
  std::size_t parked_count_ = 0;
  std::unordered_map<key, std::uint64_t> watches_;
  std::uint64_t last_ = 0;  // token, watch
};

}  // namespace dsec::actors

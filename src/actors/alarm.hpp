// One outstanding delayed message per actor instead of one per deadline. CAF cannot cancel a
// delayed message and every one of them wakes its clock thread; deadlines are nearly always met, so
// an actor arms only for the earliest one it has, and looks again when that rings. Belongs to one
// actor's state.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "actors/interfaces.hpp"

namespace dsec::actors {

class alarm {
 public:
  /// Makes sure that `self` gets an alarm_rang at `at` or before.
  template <class Self>
  void want(Self* self, time_point at) {
    if (armed_ && *armed_ <= at) return;
    armed_ = at;
    const auto now = self->clock().now();
    // Up to the next whole millisecond, so that what was due at `at` is due when it rings.
    const auto delay =
        std::chrono::ceil<std::chrono::milliseconds>(at > now ? at - now : time_point::duration(0));
    self->delayed_send(self, delay, alarm_rang{++generation_});
  }

  /// False for an alarm that was overtaken by an earlier one.
  bool is_current(const alarm_rang& rang) {
    if (rang.generation != generation_) return false;
    armed_.reset();
    return true;
  }

 private:
  std::optional<time_point> armed_;
  std::uint64_t generation_ = 0;
};

}  // namespace dsec::actors

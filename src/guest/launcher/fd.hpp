// File descriptors of the launcher and where they live. The table is divided, because every sandbox
// is made by a child that first takes a private copy of the table: only what lies below
// `first_kept` is copied, whatever number of sandboxes is held above it.
//
//   3 .. 14   reserved: what aether is exec'ed with is put exactly here for the moment of the clone
//             (init.hpp)
//   15, 16    what fills the reserved numbers meanwhile; aether's image
//   17 .. 63  free: what belongs to the request in hand
//   64 ..     kept: everything that outlives a request
#pragma once

#include <fcntl.h>

#include <utility>

#include "guest/channel.hpp"
#include "guest/launcher/sys.hpp"

namespace dsec::launcher {

inline constexpr int first_reserved = guest::fd_channel;
inline constexpr int end_reserved = guest::fd_tasks + static_cast<int>(guest::max_tasks_fds);
inline constexpr int filler_number = end_reserved;
inline constexpr int image_number = filler_number + 1;
inline constexpr int first_kept = 64;

class fd {
 public:
  fd() = default;
  /// Takes ownership; a negative number (the answer of a failed call) is kept to be looked at by
  /// error().
  explicit fd(long number) : number_(static_cast<int>(number)) {}
  fd(fd&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  fd& operator=(fd&& other) noexcept {
    if (this != &other) {
      reset();
      number_ = std::exchange(other.number_, -1);
    }
    return *this;
  }
  ~fd() { reset(); }

  [[nodiscard]] int get() const { return number_; }
  [[nodiscard]] bool valid() const { return number_ >= 0; }
  [[nodiscard]] int release() { return std::exchange(number_, -1); }
  void reset() {
    if (number_ >= 0) sys::call(SYS_close, number_);
    number_ = -1;
  }

  /// Moves to a number from `first_kept` on; the answer is that of the system call.
  long keep() {
    const long kept = sys::call(SYS_fcntl, number_, F_DUPFD_CLOEXEC, first_kept);
    if (kept < 0) return kept;
    reset();
    number_ = static_cast<int>(kept);
    return 0;
  }

 private:
  int number_ = -1;
};

}  // namespace dsec::launcher

// A descriptor that closes itself. The number is kept plus one, so that zeroed static tables hold
// empty ones.
#pragma once

#include "guest/aether/syscall.hpp"

namespace dsec::guest::aether {

class unique_fd {
 public:
  constexpr unique_fd() = default;
  constexpr explicit unique_fd(long fd) : plus_one_(fd < 0 ? 0 : static_cast<int>(fd) + 1) {}
  unique_fd(unique_fd&& other) noexcept : plus_one_(other.plus_one_) { other.plus_one_ = 0; }
  unique_fd& operator=(unique_fd&& other) noexcept {
    if (this != &other) {
      reset();
      plus_one_ = other.plus_one_;
      other.plus_one_ = 0;
    }
    return *this;
  }
  ~unique_fd() { reset(); }

  [[nodiscard]] int get() const { return plus_one_ - 1; }
  explicit operator bool() const { return plus_one_ != 0; }
  void reset() {
    if (plus_one_ != 0) sys::close(get());
    plus_one_ = 0;
  }

 private:
  int plus_one_ = 0;
};

}  // namespace dsec::guest::aether

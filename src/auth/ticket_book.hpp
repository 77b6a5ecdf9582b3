// Tickets: what a page in a browser, which cannot set headers, opens its WebSocket with. Single
// use, short-lived, bounded in number, and known here by their hashes alone. Thread-safe.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "auth/identity.hpp"
#include "base/result.hpp"

namespace dsec::auth {

inline std::chrono::steady_clock::time_point steady_now() {
  return std::chrono::steady_clock::now();
}

class ticket_book {
 public:
  using clock = std::function<std::chrono::steady_clock::time_point()>;

  static constexpr std::chrono::seconds lifetime{30};
  /// Unused ones at a time: of one key, so that nobody takes all there are, and altogether.
  static constexpr std::size_t most_of_a_key = 64, most = 4096;

  explicit ticket_book(clock now = steady_now) : now_(std::move(now)) {}

  /// errc::capacity when there are too many.
  base::result<std::string> issue(const identity& who);
  /// Whose it is; nullopt when it is unknown, late or used.
  std::optional<identity> use(std::string_view ticket);

 private:
  struct entry {
    identity who;
    std::chrono::steady_clock::time_point good_until;
  };

  const clock now_;
  std::mutex mutex_;
  std::map<std::string, entry> unused_;  // by hash
};

}  // namespace dsec::auth

// Who may come in: the API keys that are good now and the tickets made with them. In memory, so
// that no request reads the store; key_watch.hpp keeps it up to date. Thread-safe, never blocks.
#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "auth/ticket_book.hpp"
#include "base/result.hpp"

namespace dsec::auth {

/// A key that is good, without the key itself.
struct known_key {
  std::string id;
  std::string principal;
  std::string hash;  // hash_of()
};

class gate {
 public:
  explicit gate(std::vector<known_key> keys = {}, ticket_book::clock now = steady_now);

  /// Whose key it is.
  [[nodiscard]] std::optional<identity> by_key(std::string_view key) const;
  /// Whose ticket it is; it is good once.
  std::optional<identity> by_ticket(std::string_view ticket);
  base::result<std::string> new_ticket(const identity& who);

  /// Whether a key is good still.
  [[nodiscard]] bool holds(std::string_view key_id) const;
  /// From now on these are good. Returns the ids of those that no longer are.
  std::vector<std::string> set_keys(std::vector<known_key> keys);

 private:
  mutable std::shared_mutex mutex_;
  std::vector<known_key> keys_;
  ticket_book tickets_;
};

}  // namespace dsec::auth

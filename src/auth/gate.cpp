#include "auth/gate.hpp"

#include <algorithm>
#include <utility>

#include "auth/api_key.hpp"
#include "base/secret.hpp"

namespace dsec::auth {

gate::gate(std::vector<known_key> keys, ticket_book::clock now)
    : keys_(std::move(keys)), tickets_(std::move(now)) {}

std::optional<identity> gate::by_key(std::string_view key) const {
  const auto hash = hash_of(key);
  std::optional<identity> found;
  const std::shared_lock lock(mutex_);
  // All of them, whichever it is: how long this takes says nothing.
  for (const auto& k : keys_) {
    if (base::same_secret(k.hash, hash)) found = identity{k.principal, k.id};
  }
  return found;
}

std::optional<identity> gate::by_ticket(std::string_view ticket) {
  auto who = tickets_.use(ticket);
  if (who && !holds(who->key_id)) return std::nullopt;
  return who;
}

base::result<std::string> gate::new_ticket(const identity& who) {
  return tickets_.issue(who);
}

bool gate::holds(std::string_view key_id) const {
  const std::shared_lock lock(mutex_);
  return std::any_of(keys_.begin(), keys_.end(),
                     [&](const known_key& k) { return k.id == key_id; });
}

std::vector<std::string> gate::set_keys(std::vector<known_key> keys) {
  {
    const std::unique_lock lock(mutex_);
    keys_.swap(keys);
  }
  std::vector<std::string> gone;
  for (const auto& k : keys) {
    if (!holds(k.id)) gone.push_back(k.id);
  }
  return gone;
}

}  // namespace dsec::auth

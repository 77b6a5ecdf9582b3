#include "auth/ticket_book.hpp"

#include <algorithm>

#include "auth/api_key.hpp"
#include "base/ids.hpp"

namespace dsec::auth {

base::result<std::string> ticket_book::issue(const identity& who) {
  const std::scoped_lock lock(mutex_);
  const auto now = now_();
  std::erase_if(unused_, [&](const auto& e) { return e.second.good_until <= now; });
  const auto of_key = std::count_if(unused_.begin(), unused_.end(), [&](const auto& e) {
    return e.second.who.key_id == who.key_id;
  });
  if (unused_.size() >= most || static_cast<std::size_t>(of_key) >= most_of_a_key) {
    return base::fail(base::errc::capacity, "too many tickets are unused (" +
                                                std::to_string(of_key) +
                                                " of this key); they end after " +
                                                std::to_string(lifetime.count()) + " s");
  }
  auto ticket = base::random_token(160);
  unused_.emplace(hash_of(ticket), entry{who, now + lifetime});
  return ticket;
}

std::optional<identity> ticket_book::use(std::string_view ticket) {
  const auto hash = hash_of(ticket);
  const std::scoped_lock lock(mutex_);
  const auto used = unused_.extract(hash);
  if (used.empty() || used.mapped().good_until <= now_()) return std::nullopt;
  return used.mapped().who;
}

}  // namespace dsec::auth

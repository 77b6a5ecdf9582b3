#include "actors/event_cursor.hpp"

#include <charconv>
#include <utility>

#include "base/ids.hpp"
#include "base/text.hpp"

namespace dsec::actors {
namespace {

/// Up to the next `end`, which goes as well.
std::string_view cut(std::string_view& rest, char end) {
  const auto at = std::min(rest.find(end), rest.size());
  const auto piece = rest.substr(0, at);
  rest.remove_prefix(std::min(at + 1, rest.size()));
  return piece;
}

}  // namespace

base::result<event_cursor> event_cursor::parse(std::string_view text) {
  event_cursor out;
  for (auto rest = text; !rest.empty();) {
    auto item = cut(rest, ',');
    const auto edge = cut(item, ':');
    place at{std::string(cut(item, ':')), 0};
    const auto* end = item.data() + item.size();
    const auto [stop, problem] = std::from_chars(item.data(), end, at.seq);
    if (problem != std::errc{} || stop != end || !base::is_valid_id(edge) || at.epoch.empty()) {
      return base::fail(base::errc::invalid_argument,
                        "'" + base::shown(text, 80) +
                            "' is no cursor of events: give the one of the reply before, or none");
    }
    out.set(std::string(edge), std::move(at));
  }
  return out;
}

std::string event_cursor::text() const {
  std::string all;
  for (const auto& [edge, at] : places_) {
    all.append(all.empty() ? "" : ",").append(edge).append(":").append(at.epoch).append(":");
    all += std::to_string(at.seq);
  }
  return all;
}

void event_cursor::take(const std::string& edge, const event_cursor& other) {
  const auto it = other.places_.find(edge);
  if (it != other.places_.end()) set(edge, it->second);
}

std::uint64_t event_cursor::since(const std::string& edge, const std::string& epoch) const {
  const auto it = places_.find(edge);
  return it == places_.end() || it->second.epoch != epoch ? 0 : it->second.seq;
}

}  // namespace dsec::actors

#include "base/failpoint.hpp"

#ifdef DSEC_FAILPOINTS

#include <signal.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/ids.hpp"

namespace dsec::base::failpoint {
namespace {

struct armed {
  bool kills = false, sticky = false;
  std::uint64_t share = whole;  // of all times, in 1/whole
  std::mt19937_64 order{};
  std::function<void()> then{};

  static constexpr std::uint64_t whole = 10'000;
  /// mt19937_64 and the remainder, unlike the standard's distributions, are the same everywhere.
  bool fires() { return share == whole || order() % whole < share; }
};

[[noreturn]] void refuse(std::string_view name, std::string_view action) {
  std::cerr << "failure point '" << name << "': unknown action '" << action << "'\n";
  std::_Exit(exit_code(errc::invalid_argument));
}

/// "5%" or "0.25%" in 1/whole; 0 when it is neither.
std::uint64_t parse_share(const std::string& text) {
  char* end = nullptr;
  const double percent = std::strtod(text.c_str(), &end);
  if (std::string_view(end) != "%" || !(percent >= 0.01 && percent <= 100)) return 0;
  return static_cast<std::uint64_t>(std::llround(percent * (armed::whole / 100.0)));
}

std::uint64_t seed() {
  const char* text = std::getenv("DSEC_FAILPOINTS_SEED");
  return text == nullptr ? 1 : std::strtoull(text, nullptr, 10);
}

armed parse(std::string_view name, std::string_view action, bool sticky) {
  const auto colon = action.find(':');
  const auto verb = action.substr(0, colon);
  if (verb != "error" && verb != "kill") refuse(name, action);
  armed a{.kills = verb == "kill", .sticky = sticky};
  if (colon == std::string_view::npos) return a;
  a.share = parse_share(std::string(action.substr(colon + 1)));
  if (a.share == 0) refuse(name, action);
  a.sticky = true;
  a.order.seed(seed() ^ id_hash(name));
  return a;
}

struct table {
  std::mutex mutex;
  std::map<std::string, armed, std::less<>> points;

  table() {
    const char* text = std::getenv("DSEC_FAILPOINTS");
    std::string_view rest = text == nullptr ? "" : text;
    while (!rest.empty()) {
      const auto item = rest.substr(0, rest.find(','));
      rest.remove_prefix(item.size() < rest.size() ? item.size() + 1 : rest.size());
      const auto equals = item.find('=');
      if (equals == std::string_view::npos) refuse(item, "");
      const auto name = item.substr(0, equals);
      points[std::string(name)] = parse(name, item.substr(equals + 1), true);
    }
  }
};

table& points() {
  static table t;
  return t;
}

}  // namespace

void arm(std::string_view name, std::string_view action, bool sticky) {
  const std::scoped_lock lock(points().mutex);
  points().points[std::string(name)] = parse(name, action, sticky);
}

void arm(std::string_view name, std::function<void()> then) {
  const std::scoped_lock lock(points().mutex);
  armed a;
  a.then = std::move(then);
  points().points[std::string(name)] = std::move(a);
}

void disarm_all() {
  const std::scoped_lock lock(points().mutex);
  points().points.clear();
}

result<void> check(std::string_view name) {
  auto& t = points();
  std::unique_lock lock(t.mutex);
  const auto it = t.points.find(name);
  if (it == t.points.end() || !it->second.fires()) return {};
  const bool kills = it->second.kills;
  const auto then = std::move(it->second.then);
  if (!it->second.sticky) t.points.erase(it);
  lock.unlock();
  if (then) {
    then();
    return {};
  }
  if (kills) ::kill(::getpid(), SIGKILL);
  return fail(errc::internal, "failure point '" + std::string(name) + "' fired");
}

}  // namespace dsec::base::failpoint

#endif

#include "base/failpoint.hpp"

#ifdef DSEC_FAILPOINTS

#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <utility>

namespace dsec::base::failpoint {
namespace {

struct armed {
  std::string action;
  bool sticky;
  std::function<void()> then{};
};

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
      if (equals == std::string_view::npos) continue;
      points[std::string(item.substr(0, equals))] = {std::string(item.substr(equals + 1)), true};
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
  points().points[std::string(name)] = {std::string(action), sticky};
}

void arm(std::string_view name, std::function<void()> then) {
  const std::scoped_lock lock(points().mutex);
  points().points[std::string(name)] = {"", false, std::move(then)};
}

void disarm_all() {
  const std::scoped_lock lock(points().mutex);
  points().points.clear();
}

result<void> check(std::string_view name) {
  auto& t = points();
  std::unique_lock lock(t.mutex);
  const auto it = t.points.find(name);
  if (it == t.points.end()) return {};
  const auto [action, sticky, then] = it->second;
  if (!sticky) t.points.erase(it);
  if (then) {
    lock.unlock();
    then();
    return {};
  }
  if (action == "kill") ::kill(::getpid(), SIGKILL);
  return fail(errc::internal, "failure point '" + std::string(name) + "' fired");
}

}  // namespace dsec::base::failpoint

#endif

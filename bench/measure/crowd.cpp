// Several clients at once: whole lives one after another (churn), and all alive together (density).
#include <cstdio>
#include <mutex>

#include "measure/measurements.hpp"

namespace dsec::measure {
namespace {

constexpr int warm_up_lives = 5;  // lives of each connection that are not counted

struct life {
  double first;  // from the create to the result of its command
  double whole;  // until it is stopped
};

result<life> live_once(ws_client& client, const subject& s) {
  const auto began = clock::now();
  DSEC_TRY(const auto sandbox, create(client, s));
  const auto ran = execute(client, sandbox, s.program);
  const double first = ms_since(began);
  DSEC_CHECK(stop(client, sandbox));
  if (!ran) return fail(ran.error());
  return life{first, ms_since(began)};
}

/// Figures of one phase, of all threads.
class figures {
 public:
  void add(std::string line) {
    const std::scoped_lock lock(mutex_);
    lines_.push_back(std::move(line));
  }
  void print() const {
    for (const auto& line : lines_) std::puts(line.c_str());
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;
};

std::string figure(const char* name, double value) {
  return std::string(name) + " " + std::to_string(value);
}

/// Does `work` for each number below `count`, in order, on so many connections.
void for_each_number(const subject& s, int connections, int count, failures& failed,
                     const std::function<result<void>(ws_client&, int)>& work) {
  std::atomic<int> next{0};
  on_connections(s, connections, failed, [&](ws_client& client, int) -> result<void> {
    for (int i = next++; i < count; i = next++) failed.take(work(client, i));
    return {};
  });
}

std::function<result<void>(ws_client&, int)> warm_up(const subject& s) {
  return [&s](ws_client& client, int) -> result<void> {
    DSEC_CHECK(live_once(client, s));
    return {};
  };
}

}  // namespace

result<int> churn(const subject& s, int seconds, int connections) {
  failures failed;
  figures seen;
  for_each_number(s, connections, connections * warm_up_lives, failed, warm_up(s));
  const auto began = clock::now();
  on_connections(s, connections, failed, [&](ws_client& client, int) -> result<void> {
    while (ms_since(began) < seconds * 1e3) {
      const auto lived = live_once(client, s);
      if (!failed.take(lived ? result<void>() : fail(lived.error()))) continue;
      seen.add(figure("first", lived->first));
      seen.add(figure("cycle", lived->whole));
    }
    return {};
  });
  seen.print();
  std::puts(figure("elapsed", ms_since(began)).c_str());
  return failed.report();
}

result<int> density(const subject& s, int count, int connections) {
  constexpr int stopping_connections = 8;
  failures failed;
  for_each_number(s, connections, connections * warm_up_lives, failed, warm_up(s));
  say_and_wait("ready");

  std::vector<std::string> sandboxes(static_cast<std::size_t>(count));
  figures seen;
  auto began = clock::now();
  for_each_number(s, connections, count, failed, [&](ws_client& client, int i) -> result<void> {
    const auto start = clock::now();
    auto& sandbox = sandboxes[static_cast<std::size_t>(i)];
    DSEC_TRY(sandbox, create(client, s));
    DSEC_CHECK(execute(client, sandbox, s.program));
    seen.add("made " + std::to_string(ms_since(began)) + " " + std::to_string(ms_since(start)));
    return {};
  });
  seen.print();
  std::erase(sandboxes, std::string());  // those that failed, which are counted
  say_and_wait("live");

  figures second;
  const int live = static_cast<int>(sandboxes.size());
  for_each_number(s, connections, live, failed, [&](ws_client& client, int i) -> result<void> {
    const auto start = clock::now();
    DSEC_CHECK(execute(client, sandboxes[static_cast<std::size_t>(i)], s.program));
    second.add(figure("second", ms_since(start)));
    return {};
  });
  second.print();
  say_and_wait("answered");

  began = clock::now();
  for_each_number(s, stopping_connections, live, failed, [&](ws_client& client, int i) {
    return stop(client, sandboxes[static_cast<std::size_t>(i)]);
  });
  std::puts(figure("stopped", ms_since(began)).c_str());
  return failed.report();
}

}  // namespace dsec::measure

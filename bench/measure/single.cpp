// One client, one request at a time: create_exec, exec_rtt, ping.
#include <cstdio>
#include <utility>

#include "measure/measurements.hpp"

namespace dsec::measure {
namespace {

constexpr int warm_up = 5;

/// Times `once` COUNT times after a warm-up; `after` is not counted.
int run(int count, const std::function<result<void>()>& once,
        const std::function<result<void>()>& after) {
  failures failed;
  for (int i = -warm_up; i < count; ++i) {
    const auto began = clock::now();
    auto outcome = once();
    const double took = ms_since(began);
    if (outcome && i >= 0) std::printf("%.4f\n", took);
    auto cleaned = after();
    if (outcome && !cleaned) outcome = cleaned;
    failed.take(outcome);
  }
  return failed.report();
}

}  // namespace

result<int> create_exec(const subject& s, int count) {
  DSEC_TRY(auto client, ws_client::connect(s.url, s.key));
  std::string sandbox;
  return run(
      count,
      [&]() -> result<void> {
        DSEC_TRY(sandbox, create(client, s));
        return execute(client, sandbox, s.program);
      },
      [&]() -> result<void> {
        const auto made = std::exchange(sandbox, {});
        return made.empty() ? result<void>{} : stop(client, made);
      });
}

result<int> exec_rtt(const subject& s, int count) {
  DSEC_TRY(auto client, ws_client::connect(s.url, s.key));
  DSEC_TRY(const std::string sandbox, create(client, s));
  const int status = run(
      count, [&] { return execute(client, sandbox, s.program); }, [] { return result<void>{}; });
  DSEC_CHECK(stop(client, sandbox));
  return status;
}

result<int> ping(const subject& s, int count) {
  DSEC_TRY(auto client, ws_client::connect(s.url, s.key));
  return run(
      count,
      [&]() -> result<void> {
        DSEC_CHECK(client.call([](proto::Request::Builder r) { r.getBody().setPing(); }));
        return {};
      },
      [] { return result<void>{}; });
}

}  // namespace dsec::measure

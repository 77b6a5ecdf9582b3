// What bench/run measures through a running dsecd, over WebSocket. Prints one figure per line, in
// milliseconds, and the number of failures on the last line as "failed N". Everything it makes it
// stops.
//   measure create_exec URL KEY COUNT BASE WORKSPACE TOOLKIT PROGRAM   create -> result of PROGRAM;
//                                                                      stop is not counted
//   measure exec_rtt    URL KEY COUNT BASE WORKSPACE TOOLKIT PROGRAM   exec in one sandbox
//   measure ping        URL KEY COUNT                                  a no-op through gateway and
//                                                                      actors
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "client/ws_client.hpp"

namespace {

using dsec::base::errc;
using dsec::base::fail;
using dsec::base::result;
using dsec::client::ws_client;
using dsec::proto::Request;

constexpr int warm_up = 5;

struct image {
  const char* base;
  const char* workspace;
  const char* toolkit;
};

result<std::string> create(ws_client& client, const image& from) {
  DSEC_TRY(const auto reply, client.call([&](Request::Builder r) {
    auto c = r.getBody().initCreateSandbox();
    c.setImage(from.base);
    c.setWorkspace(from.workspace);
    c.initToolkits(1).set(0, from.toolkit);
    c.setMemoryMb(256);
  }));
  if (!reply.body().isSandbox())
    return fail(errc::protocol, "create was answered with something else");
  return std::string(reply.body().getSandbox().getSandboxId());
}

result<void> execute(ws_client& client, const std::string& sandbox, const char* program,
                     int number) {
  // Of this process: a command id is never started twice.
  const std::string id = "bench-" + std::to_string(::getpid()) + "-" + std::to_string(number);
  DSEC_TRY(const auto reply, client.call([&](Request::Builder r) {
    auto e = r.getBody().initExec();
    e.setSandboxId(sandbox);
    e.setCommandId(id);
    e.initArgv(1).set(0, program);
    e.setWait(true);
  }));
  const auto body = reply.body();
  if (!body.isCommand() || body.getCommand().getState() != dsec::proto::CommandState::ENDED ||
      body.getCommand().getExitCode() != 0) {
    return fail(errc::internal, "the command did not end with 0");
  }
  return {};
}

result<void> stop(ws_client& client, const std::string& sandbox) {
  DSEC_CHECK(client.call(
      [&](Request::Builder r) { r.getBody().initStopSandbox().setSandboxId(sandbox); }));
  return {};
}

/// Times `once` COUNT times after a warm-up; `after` is not counted.
int run(int count, const std::function<result<void>(int)>& once,
        const std::function<result<void>()>& after) {
  int failed = 0;
  for (int i = -warm_up; i < count; ++i) {
    const auto began = std::chrono::steady_clock::now();
    auto outcome = once(i);
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
    if (outcome && i >= 0) std::printf("%.4f\n", took.count());
    auto cleaned = after();
    if (outcome && !cleaned) outcome = cleaned;
    if (outcome) continue;
    if (failed++ == 0) std::fprintf(stderr, "measure: %s\n", outcome.error().to_string().c_str());
  }
  std::printf("failed %d\n", failed);
  return failed == 0 ? 0 : 1;
}

int create_exec(ws_client& client, int count, const image& from, const char* program) {
  std::string sandbox;
  return run(
      count,
      [&](int number) -> result<void> {
        DSEC_TRY(sandbox, create(client, from));
        return execute(client, sandbox, program, number);
      },
      [&]() -> result<void> {
        const auto made = std::exchange(sandbox, {});
        return made.empty() ? result<void>{} : stop(client, made);
      });
}

result<int> exec_rtt(ws_client& client, int count, const image& from, const char* program) {
  DSEC_TRY(const std::string sandbox, create(client, from));
  const int status = run(
      count, [&](int number) { return execute(client, sandbox, program, number); },
      [] { return result<void>{}; });
  DSEC_CHECK(stop(client, sandbox));
  return status;
}

int ping(ws_client& client, int count) {
  return run(
      count,
      [&](int) -> result<void> {
        DSEC_CHECK(client.call([](Request::Builder r) { r.getBody().setPing(); }));
        return {};
      },
      [] { return result<void>{}; });
}

result<int> dispatch(int argc, char** argv) {
  const std::string what = argc > 4 ? argv[1] : "";
  if ((what != "ping" || argc != 5) &&
      ((what != "create_exec" && what != "exec_rtt") || argc != 9)) {
    return fail(errc::invalid_argument,
                "usage: measure create_exec|exec_rtt|ping URL KEY COUNT [IMAGES PROGRAM]");
  }
  DSEC_TRY(auto client, ws_client::connect(argv[2], argv[3]));
  const int count = std::atoi(argv[4]);
  if (what == "ping") return ping(client, count);
  const image from{argv[5], argv[6], argv[7]};
  if (what == "exec_rtt") return exec_rtt(client, count, from, argv[8]);
  return create_exec(client, count, from, argv[8]);
}

}  // namespace

int main(int argc, char** argv) {
  const auto status = dispatch(argc, argv);
  if (status) return *status;
  std::fprintf(stderr, "measure: %s\n", status.error().to_string().c_str());
  return 2;
}

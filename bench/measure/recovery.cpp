// What is asked of a dsecd that is killed and started again: before, and as soon as it is there.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <thread>

#include "measure/measurements.hpp"

namespace dsec::measure {
namespace {

constexpr auto patience = std::chrono::seconds(30);
constexpr int connections = 4;
constexpr const char* held_command = "held";
constexpr const char* stream_command = "stream";
/// Runs until somebody writes to its pipe, and can do so only once: a second run finds the pipe.
constexpr const char* hold =
    "/bin/busybox mkfifo /tmp/held && read word < /tmp/held && echo \"got $word\"";
constexpr const char* let_go = "while [ ! -p /tmp/held ]; do :; done; echo 42 > /tmp/held";
constexpr const char* held_output = "got 42\n";

result<ws_client> connect_again(const subject& s) {
  const auto until = clock::now() + patience;
  while (true) {
    auto client = ws_client::connect(s.url, s.key);
    if (client || clock::now() > until) return client;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

/// The command was neither lost nor run again: it runs, and ends when it is let go.
result<void> check_held(ws_client& client, const std::string& sandbox) {
  const auto ask = [&](std::uint32_t wait_ms) {
    return client.call([&](proto::Request::Builder r) {
      auto g = r.getBody().initGetCommand();
      g.setSandboxId(sandbox);
      g.setCommandId(held_command);
      g.setWaitMs(wait_ms);
    });
  };
  DSEC_TRY(const auto before, ask(0));
  if (before.body().getCommand().getState() != proto::CommandState::RUNNING)
    return fail(errc::internal, "the command in '" + sandbox + "' does not run any more");
  DSEC_CHECK(execute_shell(client, sandbox, let_go));
  DSEC_TRY(const auto after, ask(10'000));
  const auto command = after.body().getCommand();
  const auto text = command.getStdout().asChars();
  if (command.getState() != proto::CommandState::ENDED || command.getExitCode() != 0 ||
      std::string_view(text.begin(), text.size()) != held_output)
    return fail(errc::internal, "the command in '" + sandbox + "' did not end as it should");
  return {};
}

result<void> check_list(ws_client& client, std::vector<std::string> expected) {
  DSEC_TRY(const auto reply,
           client.call([](proto::Request::Builder r) { r.getBody().setListSandboxes(); }));
  std::vector<std::string> running;
  for (const auto sandbox : reply.body().getSandboxes()) {
    if (sandbox.getPhase() == "running") running.emplace_back(sandbox.getSandboxId());
  }
  std::sort(running.begin(), running.end());
  std::sort(expected.begin(), expected.end());
  if (running == expected) return {};
  return fail(errc::internal, std::to_string(running.size()) + " of " +
                                  std::to_string(expected.size()) + " sandboxes are listed");
}

}  // namespace

result<int> recovery_fill(const subject& s, int count, int running) {
  failures failed;
  std::vector<std::string> made(static_cast<std::size_t>(count));
  std::atomic<int> next{0};
  on_connections(s, connections, failed, [&](ws_client& client, int) -> result<void> {
    for (int i = next++; i < count; i = next++) {
      auto& sandbox = made[static_cast<std::size_t>(i)];
      DSEC_TRY(sandbox, create(client, s));
      DSEC_CHECK(i < running ? start_shell(client, sandbox, held_command, hold)
                             : execute(client, sandbox, s.program));
    }
    return {};
  });
  for (const auto& sandbox : made) std::printf("sandbox %s\n", sandbox.c_str());
  return failed.report();
}

result<int> recovery_check(const subject& s, double killed_at_ms, int running) {
  const clock::time_point killed(std::chrono::duration_cast<clock::duration>(
      std::chrono::duration<double, std::milli>(killed_at_ms)));
  std::vector<std::string> expected;
  for (std::string line; std::getline(std::cin, line);) expected.push_back(line);
  const int count = static_cast<int>(expected.size());

  DSEC_TRY(auto first, connect_again(s));
  std::printf("connected %.4f\n", ms_since(killed));
  failures failed;
  failed.take(check_list(first, expected));
  std::printf("listed %.4f\n", ms_since(killed));
  std::atomic<int> next{0};
  on_connections(s, connections, failed, [&](ws_client& client, int) -> result<void> {
    for (int i = next++; i < count; i = next++) {
      const auto& sandbox = expected[static_cast<std::size_t>(i)];
      failed.take(i < running ? check_held(client, sandbox) : execute(client, sandbox, s.program));
    }
    return {};
  });
  std::printf("served %.4f\n", ms_since(killed));
  return failed.report();
}

result<int> stream_start(const subject& s, const std::string& script, std::uint64_t cap) {
  DSEC_TRY(auto client, ws_client::connect(s.url, s.key));
  DSEC_TRY(const auto sandbox, create(client, s));
  DSEC_CHECK(start_shell(client, sandbox, stream_command, script, cap));
  std::printf("sandbox %s\n", sandbox.c_str());
  return 0;
}

namespace {

/// Copies what there is from `offset` on to standard output. True: that was the end.
result<bool> copy_piece(ws_client& client, const std::string& sandbox, std::uint64_t& offset) {
  DSEC_TRY(const auto reply, client.call([&](proto::Request::Builder r) {
    auto o = r.getBody().initReadOutput();
    o.setSandboxId(sandbox);
    o.setCommandId(stream_command);
    o.setOffset(offset);
    o.setLength(4U << 20U);
  }));
  const auto piece = reply.body().getOutput();
  const auto data = piece.getData();
  if (data.size() > 0 && piece.getOffset() != offset)
    return fail(errc::internal, "output is missing from byte " + std::to_string(offset));
  std::fwrite(data.begin(), 1, data.size(), stdout);
  std::fflush(stdout);
  offset += data.size();
  if (piece.getEnded() && offset >= piece.getTotal()) return true;
  if (data.size() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return false;
}

}  // namespace

/// A reader whose connections break: it connects again and goes on where it was.
result<int> stream_read(const subject& s, const std::string& sandbox) {
  std::uint64_t offset = 0;
  auto until = clock::now() + patience;
  while (true) {
    DSEC_TRY(auto client, connect_again(s));
    while (true) {
      const auto before = offset;
      const auto ended = copy_piece(client, sandbox, offset);
      if (ended && *ended) return 0;
      if (offset > before) until = clock::now() + patience;
      if (clock::now() > until)
        return fail(ended ? base::error{errc::deadline_exceeded, "no output comes", 0}
                          : ended.error());
      if (ended) continue;
      if (ended.error().code != errc::unavailable) return fail(ended.error());
      break;
    }
  }
}

}  // namespace dsec::measure

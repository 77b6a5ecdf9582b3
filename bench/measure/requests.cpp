#include "measure/requests.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <thread>

namespace dsec::measure {
namespace {

using proto::Request;

/// Of this process: a command id is never started twice.
std::string next_command() {
  static std::atomic<unsigned> last{0};
  return "bench-" + std::to_string(::getpid()) + "-" + std::to_string(++last);
}

result<void> run(ws_client& client, const std::function<void(proto::Exec::Builder)>& fill) {
  DSEC_TRY(const auto reply, client.call([&](Request::Builder r) {
    auto e = r.getBody().initExec();
    e.setCommandId(next_command());
    e.setWait(true);
    fill(e);
  }));
  const auto body = reply.body();
  if (!body.isCommand() || body.getCommand().getState() != proto::CommandState::ENDED)
    return fail(errc::internal, "the command did not end");
  if (const auto code = body.getCommand().getExitCode(); code != 0)
    return fail(errc::internal, "the command ended with " + std::to_string(code));
  return {};
}

}  // namespace

result<std::string> create(ws_client& client, const subject& s) {
  DSEC_TRY(const auto reply, client.call([&](Request::Builder r) {
    auto c = r.getBody().initCreateSandbox();
    c.setImage(s.base);
    c.setWorkspace(s.workspace);
    c.initToolkits(1).set(0, s.toolkit);
    c.setMemoryMb(256);
  }));
  if (!reply.body().isSandbox())
    return fail(errc::protocol, "create was answered with something else");
  return std::string(reply.body().getSandbox().getSandboxId());
}

result<void> stop(ws_client& client, const std::string& sandbox) {
  DSEC_CHECK(client.call(
      [&](Request::Builder r) { r.getBody().initStopSandbox().setSandboxId(sandbox); }));
  return {};
}

result<void> execute(ws_client& client, const std::string& sandbox, const std::string& program) {
  return run(client, [&](proto::Exec::Builder e) {
    e.setSandboxId(sandbox);
    e.initArgv(1).set(0, program);
  });
}

result<void> execute_shell(ws_client& client, const std::string& sandbox,
                           const std::string& script) {
  return run(client, [&](proto::Exec::Builder e) {
    e.setSandboxId(sandbox);
    e.setShell(script);
  });
}

result<void> start_shell(ws_client& client, const std::string& sandbox, const std::string& command,
                         const std::string& script, std::uint64_t output_limit) {
  DSEC_CHECK(client.call([&](Request::Builder r) {
    auto e = r.getBody().initExec();
    e.setSandboxId(sandbox);
    e.setCommandId(command);
    e.setShell(script);
    e.setOutputLimit(output_limit);
  }));
  return {};
}

bool failures::take(const result<void>& outcome) {
  if (outcome) return true;
  if (count_++ == 0) std::fprintf(stderr, "measure: %s\n", outcome.error().to_string().c_str());
  return false;
}

int failures::report() const {
  std::printf("failed %d\n", count());
  return count() == 0 ? 0 : 1;
}

void on_connections(const subject& s, int connections, failures& failed,
                    const std::function<result<void>(ws_client&, int)>& body) {
  std::vector<std::jthread> threads;
  for (int n = 0; n < connections; ++n) {
    threads.emplace_back([&, n] {
      auto client = ws_client::connect(s.url, s.key);
      if (!client) {
        failed.take(fail(client.error()));
      } else {
        failed.take(body(*client, n));
      }
    });
  }
}

void say_and_wait(const char* word) {
  std::printf("%s\n", word);
  std::fflush(stdout);
  char line[16];
  (void)!::read(0, line, sizeof line);
}

}  // namespace dsec::measure

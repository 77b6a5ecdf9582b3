// What every measurement asks a dsecd for, over the synchronous client, and how it says what it
// saw.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "net/client/ws_client.hpp"

namespace dsec::measure {

using base::errc;
using base::fail;
using base::result;
using client::ws_client;
using clock = std::chrono::steady_clock;

/// Where dsecd listens, and what sandboxes are made of and run.
struct subject {
  std::string url, key;
  std::string base, workspace, toolkit;
  std::string program;
};

inline double ms_since(clock::time_point began) {
  return std::chrono::duration<double, std::milli>(clock::now() - began).count();
}

/// A sandbox of 256 MiB, running.
result<std::string> create(ws_client& client, const subject& s);
result<void> stop(ws_client& client, const std::string& sandbox);

/// Runs it to its end; an error unless that is exit code 0.
result<void> execute(ws_client& client, const std::string& sandbox, const std::string& program);
result<void> execute_shell(ws_client& client, const std::string& sandbox,
                           const std::string& script);
/// Returns when it runs. `output_limit` 0 = the server's default.
result<void> start_shell(ws_client& client, const std::string& sandbox, const std::string& command,
                         const std::string& script, std::uint64_t output_limit = 0);

/// Counts attempts that failed, of any thread; says why of the first.
class failures {
 public:
  /// Whether it was well.
  bool take(const result<void>& outcome);
  [[nodiscard]] int count() const { return count_; }
  /// Prints "failed N"; the exit status.
  [[nodiscard]] int report() const;

 private:
  std::atomic<int> count_{0};
};

/// Prints a word alone on its line; whoever reads it looks at the machine and sends a line then.
void say_and_wait(const char* word);

/// Runs body(client, n) for n = 0 … connections - 1, each on a thread with a connection of its own,
/// all at once. An error of connecting or of a body ends only that thread, and counts.
void on_connections(const subject& s, int connections, failures& failed,
                    const std::function<result<void>(ws_client&, int)>& body);

}  // namespace dsec::measure

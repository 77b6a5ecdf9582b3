// What bench/run measures through a running dsecd, over WebSocket. Prints one figure per line, in
// milliseconds, with a name before it where there are several kinds, and the number of failures on
// the last line as "failed N". IMAGES is BASE WORKSPACE TOOLKIT.
//   measure ping        URL KEY COUNT                  a no-op through gateway and actors
//   measure no_ops      URL KEY SECONDS CONNECTIONS binary|packed|text
//                       no-ops, one on its way on each connection; "rate" per second
//   measure idle        URL KEY CONNECTIONS            "ready", "connected"; waits as density does
//   measure create_exec URL KEY COUNT IMAGES PROGRAM   create -> result of PROGRAM; stop is not
//                                                      counted
//   measure exec_rtt    URL KEY COUNT IMAGES PROGRAM   exec in one sandbox
//   measure churn       URL KEY SECONDS CONNECTIONS IMAGES PROGRAM
//                       lives one after another: "first" to the result, "cycle" to the end of the
//                       stop, "elapsed"
//   measure density     URL KEY COUNT CONNECTIONS IMAGES PROGRAM
//                       "ready"; "made AT MS" for each; "live"; "second" for each; "answered";
//                       "stopped". Goes on after a word alone on its line when it is sent a line
//   measure recovery_fill  URL KEY COUNT RUNNING IMAGES PROGRAM    "sandbox ID" for each; a command
//                                                                  goes on in the first RUNNING
//   measure recovery_check URL KEY KILLED_AT RUNNING PROGRAM       ids on standard input; times from
//                       KILLED_AT (CLOCK_MONOTONIC): "connected", "listed", "served"
//   measure stream_start   URL KEY SCRIPT BYTES IMAGES             "sandbox ID"; the script runs on
//   measure stream_read    URL KEY SANDBOX                         its output, whatever breaks
//                                                                  meanwhile
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "measure/measurements.hpp"

namespace dsec::measure {
namespace {

/// The words after the name; running out of them is an error that run() reports.
class words {
 public:
  words(int argc, char** argv) : at_(argv + 2), end_(argv + argc) {}
  std::string text() { return at_ < end_ ? *at_++ : (missing_ = true, std::string()); }
  int number() { return std::atoi(text().c_str()); }
  [[nodiscard]] bool right() const { return at_ == end_ && !missing_; }

 private:
  char** at_;
  char** end_;
  bool missing_ = false;
};

result<int> usage() {
  return fail(errc::invalid_argument, "wrong arguments: see the head of bench/measure/main.cpp");
}

result<int> dispatch(std::string_view what, words w) {
  subject s;
  s.url = w.text();
  s.key = w.text();
  const auto images = [&] {
    s.base = w.text();
    s.workspace = w.text();
    s.toolkit = w.text();
  };
  if (what == "ping") {
    const int count = w.number();
    return w.right() ? ping(s, count) : usage();
  }
  if (what == "no_ops") {
    const int seconds = w.number();
    const int connections = w.number();
    const auto encoding = w.text();
    return w.right() ? no_ops(s, seconds, connections, encoding) : usage();
  }
  if (what == "idle") {
    const int connections = w.number();
    return w.right() ? idle(s, connections) : usage();
  }
  if (what == "stream_read") {
    const auto sandbox = w.text();
    return w.right() ? stream_read(s, sandbox) : usage();
  }
  if (what == "stream_start") {
    const auto script = w.text();
    const auto cap = std::strtoull(w.text().c_str(), nullptr, 10);
    images();
    return w.right() ? stream_start(s, script, cap) : usage();
  }
  if (what == "recovery_check") {
    const double killed_at = std::atof(w.text().c_str());
    const int running = w.number();
    s.program = w.text();
    return w.right() ? recovery_check(s, killed_at, running) : usage();
  }
  const int count = w.number();
  const bool one_by_one = what == "create_exec" || what == "exec_rtt";
  const int second = one_by_one ? 0 : w.number();
  images();
  s.program = w.text();
  if (!w.right()) return usage();
  if (what == "create_exec") return create_exec(s, count);
  if (what == "exec_rtt") return exec_rtt(s, count);
  if (what == "churn") return churn(s, count, second);
  if (what == "density") return density(s, count, second);
  if (what == "recovery_fill") return recovery_fill(s, count, second);
  return usage();
}

int run(int argc, char** argv) {
  const auto status = dispatch(argc > 1 ? argv[1] : "", words(argc, argv));
  if (status) return *status;
  std::fprintf(stderr, "measure: %s\n", status.error().to_string().c_str());
  return 2;
}

}  // namespace
}  // namespace dsec::measure

int main(int argc, char** argv) {
  return dsec::measure::run(argc, argv);
}

// dsecd smoke: a sandbox's whole life on this machine, from an image to nothing left, in an
// instance of its own. A release gate: exit code 0 when every step does what it must. Main thread.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <filesystem>
#include <iostream>
#include <mutex>
#include <thread>

#include "base/log.hpp"
#include "base/paths.hpp"
#include "cli/cli.hpp"
#include "cli/own_instance.hpp"
#include "cli/scratch.hpp"
#include "cli/smoke/session.hpp"
#include "cli/unattended.hpp"

namespace dsec::cli {
namespace {

using base::errc;
using base::fail;
using base::result;
using clock = std::chrono::steady_clock;

constexpr std::uint32_t slots = 4;
/// For a step; then its daemon is killed, which ends every call to it.
constexpr std::chrono::seconds step_patience{120};

/// Kills the daemon when a step takes too long.
class step_watch {
 public:
  explicit step_watch(const smoke::session& s)
      : thread_([this, pid = s.daemon ? s.daemon->pid() : 0] {
          std::unique_lock lock(mutex_);
          if (!over_.wait_for(lock, step_patience, [this] { return done_; }) && pid > 0)
            ::kill(pid, SIGKILL);
        }) {}
  ~step_watch() {
    {
      const std::scoped_lock lock(mutex_);
      done_ = true;
    }
    over_.notify_all();
    thread_.join();
  }
  step_watch(const step_watch&) = delete;
  step_watch& operator=(const step_watch&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable over_;
  bool done_ = false;
  std::thread thread_;
};

/// Whatever a run has left, its own or one that was killed.
result<void> end_all(const base::config& c) {
  const base::paths where(c.state);
  std::error_code bad;
  if (!std::filesystem::exists(where.instance_file(), bad)) return {};
  DSEC_TRY(const auto lock, state_lock::acquire(where, c.node.instance, lock_use::clear));
  DSEC_TRY(const auto left, end_what_is_left(lock, c));
  return left.recorded;
}

result<void> run_steps(smoke::session& s) {
  for (const auto& step : smoke::all_steps()) {
    const auto began = clock::now();
    const auto seen = [&] {
      const step_watch watch(s);
      return (s.*step.run)();
    }();
    const auto spent =
        std::chrono::duration_cast<std::chrono::milliseconds>(clock::now() - began).count();
    std::cout << (seen ? "ok    " : "FAIL  ") << step.name
              << std::string(12 - std::string_view(step.name).size(), ' ') << spent << " ms  "
              << (seen ? *seen : seen.error().sentence()) << '\n'
              << std::flush;
    if (!seen) return fail(errc::internal, std::string("smoke: step '") + step.name + "' failed");
  }
  return {};
}

result<void> smoke_test(const base::config& c) {
  if (::geteuid() != 0)
    return fail(errc::permission_denied, "dsecd smoke must run as root: it runs a dsecd");
  DSEC_TRY(const auto place, scratch::make(c.state, instance_here(c), "smoke"));
  smoke::session s{.config = c, .directory = place.path()};
  s.config.node = own_instance(c, "smoke", slots);
  s.config.state = place.path() / "state";
  s.config.gateway.bind = "127.0.0.1";
  s.config.gateway.port = 0;
  // Its client is on this machine.
  s.config.gateway.tls_cert.clear();
  s.config.gateway.tls_key.clear();
  DSEC_CHECK(end_all(s.config));
  DSEC_CHECK(place.clear());
  const auto done = run_steps(s);
  if (done) return done;
  s.connection.reset();
  s.daemon.reset();
  if (const auto ended = end_all(s.config); !ended)
    std::cerr << "dsecd: what the steps have left: " << ended.error().to_string() << "\n";
  return done;
}

}  // namespace

void add_smoke(CLI::App& app, context& shared) {
  auto* command = app.add_subcommand(
      "smoke", "run a sandbox's whole life on this machine, beside whatever runs: a release gate");
  command->footer(
      "Examples:\n"
      "  dsecd smoke\n"
      "  dsecd smoke --state /srv/dsec\n");
  add_places(*command, shared);
  command->callback([&shared] {
    shared.chosen = [&shared] {
      const auto c = shared.effective();
      if (!c) return report(c.error());
      base::log::set_level(base::log::level::error);
      const auto done = smoke_test(*c);
      if (!done) return report(done.error()) == 77 ? 77 : 1;
      std::cout << "all is well\n";
      return 0;
    };
  });
}

}  // namespace dsec::cli

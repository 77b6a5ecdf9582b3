// dsecd stop: ends the daemon that holds a state directory. Its sandboxes run on, or end (--all).
#include "cli/stop.hpp"

#include <signal.h>
#include <unistd.h>

#include <iostream>

#include "cli/cli.hpp"
#include "cli/holder.hpp"
#include "cli/state_dir.hpp"

namespace dsec::cli {
namespace {

using base::result;

/// Whether there was a daemon: it has had the signal and has ended. Who only works on the directory
/// is left to finish that.
result<bool> end_daemon(const base::paths& where, int signal, sys::deadline until) {
  while (true) {
    DSEC_TRY(const auto found, holder::find(where));
    if (!found) return false;
    if (found->serves()) DSEC_CHECK(found->signal(signal));
    DSEC_CHECK(found->wait(until));
    if (found->serves()) return true;
  }
}

/// Two that end the same daemon come here one after the other.
result<state_lock> lock_alone(const base::paths& where, const std::string& instance,
                              sys::deadline until) {
  while (true) {
    auto lock = state_lock::acquire(where, instance, lock_use::clear);
    if (lock || lock.error().code != base::errc::already_exists) return lock;
    DSEC_TRY(const auto found, holder::find(where));
    if (found && found->serves()) return lock;  // it was started meanwhile
    if (found) DSEC_CHECK(found->wait(until));
  }
}

result<what_was_left> end_the_rest(const base::paths& where, const base::config& c,
                                   sys::deadline until) {
  auto mine = c;
  mine.node.instance = instance_of(where);
  if (mine.node.instance.empty()) return what_was_left{};  // never used, or purged
  DSEC_TRY(const auto lock, lock_alone(where, mine.node.instance, until));
  DSEC_TRY(auto left, end_what_is_left(lock, mine));
  ::unlink(where.url().c_str());  // there will be nobody to wait for
  return left;
}

result<void> stop_daemon(const base::config& c, std::chrono::seconds patience) {
  const base::paths where(c.state);
  DSEC_TRY(const auto stopped, end_daemon(where, SIGTERM, sys::after(patience)));
  DSEC_TRY(const auto count, count_living(where));
  std::cout << (stopped ? "stopped dsecd" : "no dsecd holds '" + c.state.string() + "'")
            << left_running(c.state, count) << "\n";
  return {};
}

result<void> stop_all(const base::config& c, std::chrono::seconds patience) {
  DSEC_TRY(const auto left, stop_everything(c, patience));
  return left.recorded;
}

}  // namespace

std::string left_running(const std::filesystem::path& state, std::size_t count) {
  if (count == 0) return "; no sandbox runs on";
  const auto option =
      state == base::config{}.state ? std::string() : " --state '" + state.string() + "'";
  return "; " + std::to_string(count) + (count == 1 ? " sandbox runs" : " sandboxes run") +
         " on: `dsecd serve" + option + "` takes them up again, `dsecd stop --all" + option +
         "` ends them";
}

result<what_was_left> stop_everything(const base::config& c, std::chrono::seconds patience) {
  const base::paths where(c.state);
  const auto until = sys::after(patience);
  DSEC_TRY(const auto stopped, end_daemon(where, SIGUSR1, until));
  // Also after a daemon: one that was killed, or could not end everything, leaves something behind.
  DSEC_TRY(auto left, end_the_rest(where, c, until));
  if (stopped)
    std::cout << "stopped dsecd and its sandboxes\n";
  else
    std::cout << "no dsecd holds '" << c.state.string() << "'\n";
  if (left.sandboxes > 0)
    std::cout << "ended " << left.sandboxes << " sandboxes that ran on without it\n";
  return left;
}

void add_stop(CLI::App& app, context& shared) {
  struct options {
    bool all = false;
    unsigned timeout = static_cast<unsigned>(stop_patience.count());
  };
  auto o = std::make_shared<options>();
  auto* stop = app.add_subcommand("stop", "stop the daemon; its sandboxes run on");
  stop->add_flag("--all", o->all, "end every sandbox, too, whether or not a daemon runs");
  stop->add_option("--timeout", o->timeout, "seconds to wait for its end")->capture_default_str();
  stop->footer(
      "Examples:\n"
      "  dsecd stop\n"
      "  dsecd stop --all --timeout 30\n");
  add_places(*stop, shared);
  on_chosen(*stop, shared, [o](const base::config& c) {
    const std::chrono::seconds patience(o->timeout);
    return o->all ? stop_all(c, patience) : stop_daemon(c, patience);
  });
}

}  // namespace dsec::cli

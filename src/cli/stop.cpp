// dsecd stop: ends the daemon that holds a state directory. Its sandboxes run on, or end (--all).
#include "cli/stop.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <iostream>

#include "base/unique_fd.hpp"
#include "cli/cli.hpp"
#include "cli/state_dir.hpp"
#include "cli/unattended.hpp"

namespace dsec::cli {
namespace {

/// Whether there was a daemon: it has had the signal and has ended.
base::result<bool> end_daemon(const base::paths& where, int signal, std::chrono::seconds patience) {
  DSEC_TRY(const auto holder, lock_holder(where));
  if (!holder) return false;
  const auto name = "dsecd (pid " + std::to_string(*holder) + ")";
  // A pidfd, so that neither the signal nor the wait can hit a process that took the number over.
  const base::unique_fd process(static_cast<int>(::syscall(SYS_pidfd_open, *holder, 0)));
  if (!process) return base::fail_errno("cannot open process " + std::to_string(*holder));
  if (::syscall(SYS_pidfd_send_signal, process.get(), signal, nullptr, 0) != 0)
    return base::fail_errno("cannot signal " + name);
  struct pollfd ended {
    process.get(), POLLIN, 0
  };
  const auto wait = std::chrono::duration_cast<std::chrono::milliseconds>(patience);
  if (::poll(&ended, 1, static_cast<int>(wait.count())) != 1) {
    return base::fail(base::errc::deadline_exceeded, name + " still stops after " +
                                                         std::to_string(patience.count()) +
                                                         " s; wait, or look at its log");
  }
  return true;
}

base::result<void> stop_daemon(const base::config& c, std::chrono::seconds patience) {
  const base::paths where(c.state);
  DSEC_TRY(const auto stopped, end_daemon(where, SIGTERM, patience));
  DSEC_TRY(const auto count, count_living(where));
  std::cout << (stopped ? "stopped dsecd" : "no dsecd holds '" + c.state.string() + "'")
            << left_running(c.state, count) << "\n";
  return {};
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

base::result<void> stop_everything(const base::config& c, std::chrono::seconds patience) {
  const base::paths where(c.state);
  DSEC_TRY(const auto stopped, end_daemon(where, SIGUSR1, patience));
  // Also after a daemon: one that was killed or gave up meanwhile leaves something behind.
  const auto instance = instance_of(where);
  std::size_t ended = 0;
  if (!instance.empty()) {
    auto mine = c;
    mine.node.instance = instance;
    DSEC_TRY(const auto lock, state_lock::acquire(where, instance));
    DSEC_TRY(ended, end_what_is_left(lock, mine));
  }
  if (stopped)
    std::cout << "stopped dsecd and its sandboxes\n";
  else
    std::cout << "no dsecd holds '" << c.state.string() << "'\n";
  if (ended > 0) std::cout << "ended " << ended << " sandboxes that ran on without it\n";
  return {};
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
  add_places(*stop, shared);
  stop->callback([&shared, o] {
    shared.chosen = [&shared, o] {
      const auto c = shared.effective();
      if (!c) return report(c.error());
      const std::chrono::seconds patience(o->timeout);
      const auto done = o->all ? stop_everything(*c, patience) : stop_daemon(*c, patience);
      return done ? 0 : report(done.error());
    };
  });
}

}  // namespace dsec::cli

// dsecd stop --all: ends the daemon that holds a state directory, and with it every sandbox.
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <iostream>

#include "cli/cli.hpp"
#include "cli/state_dir.hpp"

namespace dsec::cli {
namespace {

base::result<void> stop_all(const base::config& c, unsigned timeout_seconds) {
  DSEC_TRY(const auto holder, lock_holder(base::paths(c.state)));
  if (!holder) {
    std::cout << "no dsecd holds '" << c.state.string() << "'\n";
    return {};
  }
  // A pidfd, so that neither the signal nor the wait can hit a process that took the number over.
  const int fd = static_cast<int>(::syscall(SYS_pidfd_open, *holder, 0));
  if (fd < 0) return base::fail_errno("cannot open process " + std::to_string(*holder));
  const bool sent = ::syscall(SYS_pidfd_send_signal, fd, SIGTERM, nullptr, 0) == 0;
  const auto failure = base::from_errno("cannot signal process " + std::to_string(*holder));
  struct pollfd ended {
    fd, POLLIN, 0
  };
  const bool gone = sent && ::poll(&ended, 1, static_cast<int>(timeout_seconds) * 1000) == 1;
  ::close(fd);
  if (!sent) return base::fail(failure);
  if (!gone) {
    return base::fail(base::errc::deadline_exceeded,
                      "dsecd (pid " + std::to_string(*holder) + ") still stops after " +
                          std::to_string(timeout_seconds) + " s; wait, or look at its log");
  }
  std::cout << "stopped dsecd (pid " << *holder << ") and its sandboxes\n";
  return {};
}

}  // namespace

void add_stop(CLI::App& app, context& shared) {
  struct options {
    bool all = false;
    unsigned timeout = 90;  // longer than dsecd gives itself (serve.cpp)
  };
  auto o = std::make_shared<options>();
  auto* stop = app.add_subcommand("stop", "stop the daemon and every sandbox");
  stop->add_flag("--all", o->all, "sandboxes too: they cannot outlive the daemon yet")->required();
  stop->add_option("--timeout", o->timeout, "seconds to wait for its end")->capture_default_str();
  stop->add_option("--config", shared.config_file, "TOML file");
  stop->add_option("--state", shared.state, "state directory (default /var/lib/dsec)");
  stop->callback([&shared, o] {
    shared.chosen = [&shared, o] {
      const auto c = shared.effective();
      if (!c) return report(c.error());
      const auto done = stop_all(*c, o->timeout);
      return done ? 0 : report(done.error());
    };
  });
}

}  // namespace dsec::cli

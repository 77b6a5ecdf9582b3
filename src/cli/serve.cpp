// dsecd serve: wires the components of a node, waits for a signal, takes them down in reverse
// order: with its sandboxes (SIGUSR1), or leaving them to the next dsecd (all other signals).
#include "cli/serve.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <iostream>
#include <memory>

#include "actors/system.hpp"
#include "auth/gate.hpp"
#include "auth/key_watch.hpp"
#include "backends/container/container_backend.hpp"
#include "base/log.hpp"
#include "base/store.hpp"
#include "cli/cli.hpp"
#include "cli/notify.hpp"
#include "cli/open_files.hpp"
#include "cli/peer.hpp"
#include "cli/reload.hpp"
#include "cli/state_dir.hpp"
#include "cli/unattended.hpp"
#include "net/door_url.hpp"

namespace dsec::cli {

sigset_t block_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  sigaddset(&set, stop_all_signal);
  ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  return set;
}

namespace {

/// Until a host that lacked something is looked at again; a look starts a sandbox.
constexpr timespec probe_pause{10, 0};

struct options {
  std::string role = "all";
  std::string instance, bind;
  int port = -1;
};

base::result<base::config> effective(const context& shared, const options& o) {
  DSEC_TRY(auto c, shared.effective());
  if (!o.instance.empty()) c.node.instance = o.instance;
  if (!o.bind.empty()) c.gateway.bind = o.bind;
  if (o.port >= 0) c.gateway.port = static_cast<std::uint16_t>(o.port);
  // The command line is held to the same rules as the file.
  return base::parse_config(base::dump_config(c), "command line");
}

/// What the host lacks of what sandboxes need, by name; empty when it has all.
std::string find_lacks(backends::backend& backend) {
  std::string missing;
  for (const auto& item : backend.probe()) {
    if (item.have) continue;
    missing += (missing.empty() ? "" : "; ") + item.what + ": " + item.detail + "; " + item.remedy;
  }
  return missing;
}

/// Waits for a stop signal. What the host lacks is looked for again meanwhile: a disk that was full
/// may have room again.
int wait_for_stop(const sigset_t& signals, actors::node& node, backends::backend& backend,
                  std::string missing, reloader& reload) {
  while (true) {
    const int signal = reload.next_stop(signals, missing.empty() ? nullptr : &probe_pause);
    if (signal > 0) return signal;
    if (missing.empty()) continue;  // interrupted
    missing = find_lacks(backend);
    node.report_host(missing);
    if (missing.empty()) base::log::info("host_lacks_nothing");
  }
}

/// As many as the host lets it have. A sandbox takes up to four, a few more per command that runs,
/// and one that is taken over comes with two at once.
void raise_open_files(const base::node_config& node) {
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  if (::setrlimit(RLIMIT_NOFILE, &files) != 0)
    base::log::warn("open_files_not_raised", {{"errno", errno}});
  ::getrlimit(RLIMIT_NOFILE, &files);
  const auto fitting = (files.rlim_cur - std::min(files.rlim_cur, own_files)) / files_of_a_sandbox;
  const bool few = fitting < node.max_sandboxes;
  base::log::write(few ? base::log::level::warn : base::log::level::info, "open_files",
                   {{"limit", files.rlim_cur},
                    {"idle_sandboxes", fitting},
                    {"max_sandboxes", node.max_sandboxes}});
}

/// What a worker says to its coordinators, and where they are; nothing for --role=all.
base::result<std::optional<actors::worker_links>> links_of(const base::config& c, bool worker) {
  if (!worker) return std::optional<actors::worker_links>();
  actors::worker_links links;
  DSEC_TRY(links.coordinators, coordinators_of(c));
  DSEC_TRY(links.secret, load_peer_secret(c, false));
  DSEC_TRY(links.node_id, load_or_make_node_id(base::paths(c.state)));
  links.program = DSEC_VERSION;
  return std::optional(std::move(links));
}

base::result<void> serve(const base::config& c, bool worker, reloader::reader read) {
  if (::geteuid() != 0) {
    return base::fail(base::errc::permission_denied,
                      "dsecd must run as root: it makes mounts, namespaces and cgroups");
  }
  const auto signals = block_signals();
  raise_open_files(c.node);

  const base::paths where(c.state);
  DSEC_TRY(const auto lock, state_lock::acquire(where, c.node.instance, lock_use::serve));
  DSEC_TRY(const auto key, load_or_make_api_key(where));
  const auto gate = std::make_shared<auth::gate>();
  DSEC_TRY(const auto keys, auth::key_watch::open(where, auth::local_key(key), gate));
  DSEC_TRY(auto links, links_of(c, worker));
  DSEC_TRY(auto store, base::open_sqlite(where.worker_db(), base::durability::process,
                                         actors::worker_migrations()));
  DSEC_TRY(auto opened, container::container_backend::open(where, c.node, c.sandbox));
  const std::shared_ptr<container::container_backend> backend = std::move(opened);
  auto missing = find_lacks(*backend);
  if (!missing.empty()) base::log::error("host_lacks", {{"what", missing}});
  if (!missing.empty() && !backend->inherits_living()) {
    // It could start no sandbox, and nobody waits for one that runs.
    backend->leave();
    return base::fail(base::errc::unsupported, "this host cannot run sandboxes: " + missing);
  }
  DSEC_TRY(const auto node, actors::start_node(c, {.backend = backend,
                                                   .images = fs::image_store(where),
                                                   .store = std::move(store),
                                                   .gate = gate,
                                                   .give_up = nullptr,
                                                   .links = std::move(links)}));
  const auto url = net::door_url(c.gateway, node->port());
  // Clients of a worker go to its coordinator.
  if (auto published = worker ? base::result<void>() : lock.publish_url(url); !published) {
    node->leave(stop_grace);  // a full disk is no reason to end what was taken over
    return published;
  }
  node->report_host(missing);
  keys->start([&node](const auto& ids) { node->keys_revoked(ids); });
  reloader reload(c, std::move(read), *node, *keys);
  base::log::info("serving",
                  {{"url", url}, {"state", c.state.string()}, {"instance", c.node.instance}});
  notify_manager("READY=1");

  const int signal = wait_for_stop(signals, *node, *backend, std::move(missing), reload);
  keys->stop();
  base::log::info(signal == stop_all_signal ? "stopping" : "leaving", {{"signal", signal}});
  notify_manager("STOPPING=1");
  if (signal == stop_all_signal) {
    ::unlink(where.url().c_str());
    node->stop(stop_grace);
    return backend->close();
  }
  // The address stays: clients wait for the next dsecd there.
  node->leave(stop_grace);
  DSEC_TRY(const auto living, count_living(where));
  base::log::info("sandboxes_left", {{"count", living}});
  if (signal == SIGINT)
    std::cout << "dsecd: stopped" << left_running(c.state, living) << '\n' << std::flush;
  return {};
}

}  // namespace

void add_serve(CLI::App& app, context& shared) {
  auto o = std::make_shared<options>();
  auto* command = app.add_subcommand("serve", "run a node (also: dsecd --role=…, without `serve`)");
  command->footer(
      "Examples:\n"
      "  dsecd serve\n"
      "  dsecd serve --state /srv/dsec --instance second --port 7171\n"
      "  dsecd serve --role coordinator --config coordinator.toml\n"
      "  dsecd serve --role worker --config worker.toml\n");
  command
      ->add_option("--role", o->role,
                   "coordinator: clients and workers come to it; worker: has the sandboxes; all: "
                   "both in one process")
      ->check(CLI::IsMember({"all", "coordinator", "worker"}))
      ->capture_default_str();
  add_places(*command, shared);
  command->add_option("--instance", o->instance,
                      "names everything this instance owns on the host (default dsec)");
  command->add_option("--bind", o->bind, "address to listen on (default 127.0.0.1)");
  command->add_option("--port", o->port, "TCP port, 0 = any free one (default 7070)")
      ->check(CLI::Range(0, 65535));
  command->callback([&shared, o] {
    shared.chosen = [&shared, o] {
      const auto c = effective(shared, *o);
      if (!c) return report(c.error());
      base::log::level level{};
      if (base::log::parse_level(c->log_level, level)) base::log::set_level(level);
      const auto read = [&shared, o] { return effective(shared, *o); };
      const auto done = o->role == "coordinator" ? serve_coordinator(*c, read)
                                                 : serve(*c, o->role == "worker", read);
      return done ? 0 : report(done.error());
    };
  });
}

}  // namespace dsec::cli

#include "cli/cli.hpp"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>

#include "base/error.hpp"

namespace dsec::cli {
namespace {

constexpr const char* description =
    "Sandboxes for agent training: one binary, coordinator or worker.\n"
    "\n"
    "Examples:\n"
    "  dsecd serve                                        start with embedded defaults on "
    "127.0.0.1:7070\n"
    "  dsecd --role=all --state /srv/dsec --port 7171     the same elsewhere\n"
    "  dsecd --role=coordinator --config coordinator.toml  clients and workers come to it\n"
    "  dsecd --role=worker --config worker.toml           has sandboxes for its coordinators\n"
    "  dsecd image import tools:1 ./dir --kind toolkit    make a layer of a directory\n"
    "  dsecd doctor                                       what this host has and lacks\n"
    "  dsecd image ls                                     what images there are\n"
    "  dsecd key create --principal alice                 an API key for somebody\n"
    "  dsecd stop                                         stop the daemon; sandboxes run on\n"
    "  dsecd stop --all                                   stop the daemon and every sandbox\n"
    "  dsecd smoke                                        a sandbox's whole life, tried\n";

/// `dsecd --role=all …` is `dsecd serve --role=all …`.
std::vector<std::string> with_default_subcommand(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (!arguments.empty() && arguments.front().starts_with("--role"))
    arguments.insert(arguments.begin(), "serve");
  // CLI11 takes them last first.
  return {arguments.rbegin(), arguments.rend()};
}

}  // namespace

base::result<base::config> context::effective() const {
  base::config c;
  if (!config_file.empty()) {
    DSEC_TRY(c, base::load_config(config_file));
  }
  const char* environment = std::getenv("DSEC_STATE");
  if (environment != nullptr && *environment != '\0') c.state = environment;
  // An unset variable of a script must not name another directory.
  if (state && state->empty())
    return base::fail(base::errc::invalid_argument, "--state is empty: name the state directory");
  if (state) c.state = *state;
  c.state = std::filesystem::absolute(c.state);
  return c;
}

void add_places(CLI::App& subcommand, context& shared) {
  subcommand.add_option("--config", shared.config_file,
                        "TOML file; see config/dsecd.toml for every key");
  subcommand.add_option("--state", shared.state,
                        "state directory (else DSEC_STATE, else the file's, else /var/lib/dsec)");
}

int report(const base::error& e) {
  std::cerr << "dsecd: " << e.to_string() << "\n";
  return base::exit_code(e.code);
}

void on_chosen(CLI::App& subcommand, context& shared,
               std::function<base::result<void>(const base::config&)> action) {
  subcommand.callback([&shared, action = std::move(action)] {
    shared.chosen = [&shared, action] {
      const auto c = shared.effective();
      if (!c) return report(c.error());
      const auto done = action(*c);
      return done ? 0 : report(done.error());
    };
  });
}

int run(int argc, char** argv) {
  CLI::App app{description, "dsecd"};
  app.set_version_flag("--version", DSEC_VERSION);
  app.require_subcommand(1);
  context shared;
  add_serve(app, shared);
  add_image(app, shared);
  add_key(app, shared);
  add_stop(app, shared);
  add_purge(app, shared);
  add_config(app, shared);
  add_doctor(app, shared);
  add_smoke(app, shared);
  add_completion(app, shared);
  if (argc < 2) {
    std::cout << app.help();
    return 0;
  }
  try {
    app.parse(with_default_subcommand(argc, argv));
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    return code == 0 ? 0 : base::exit_code(base::errc::invalid_argument);
  }
  return shared.chosen();
}

}  // namespace dsec::cli

// dsecd config check|dump: is this file right, and what is in force.
#include <iostream>

#include "cli/cli.hpp"

namespace dsec::cli {

void add_config(CLI::App& app, context& shared) {
  auto* config =
      app.add_subcommand("config", "check a configuration file, or print what is in force");
  config->require_subcommand(1);
  config->footer("Examples:\n  dsecd config check config/dsecd.toml\n  dsecd config dump\n");
  for (const bool dump : {false, true}) {
    auto* verb = config->add_subcommand(dump ? "dump" : "check",
                                        dump ? "print the effective configuration as TOML"
                                             : "parse the file; silent when it is right");
    verb->footer(dump ? "Examples:\n"
                        "  dsecd config dump\n"
                        "  dsecd config dump config/dsecd.toml --state /srv/dsec\n"
                      : "Examples:\n  dsecd config check config/dsecd.toml\n");
    verb->add_option("--config,file", shared.config_file, "TOML file (default: embedded defaults)");
    verb->add_option("--state", shared.state, "state directory");
    on_chosen(*verb, shared, [dump](const base::config& c) -> base::result<void> {
      if (dump) std::cout << base::dump_config(c);
      return {};
    });
  }
}

}  // namespace dsec::cli

// The command line of dsecd: parses, dispatches, prints errors, returns exit codes
// (base/error.hpp). A subcommand is one file with one add_* function. Runs on the main thread.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "base/config.hpp"

namespace dsec::cli {

/// Options every subcommand shares, and where the result of the chosen one goes.
struct context {
  std::string config_file;
  std::optional<std::string> state;  // --state; else DSEC_STATE, else the config's
  std::function<int()> chosen;       // set by the parsed subcommand's callback

  /// File, then environment, then command line.
  [[nodiscard]] base::result<base::config> effective() const;
};

int run(int argc, char** argv);

/// The options --config and --state, which a subcommand that works on a state directory has.
void add_places(CLI::App& subcommand, context& shared);

/// Prints "dsecd: <error>" and returns its exit code.
int report(const base::error& e);

/// What the subcommand does when it is chosen: `action` with the effective configuration. Its
/// error, or that of the configuration, is printed and is the exit code.
void on_chosen(CLI::App& subcommand, context& shared,
               std::function<base::result<void>(const base::config&)> action);

/// "; N sandboxes run on: …" and how to go on from there.
std::string left_running(const std::filesystem::path& state, std::size_t count);

void add_serve(CLI::App& app, context& shared);
void add_image(CLI::App& app, context& shared);
void add_key(CLI::App& app, context& shared);
void add_stop(CLI::App& app, context& shared);
void add_purge(CLI::App& app, context& shared);
void add_config(CLI::App& app, context& shared);
void add_doctor(CLI::App& app, context& shared);
void add_smoke(CLI::App& app, context& shared);
void add_completion(CLI::App& app, context& shared);

}  // namespace dsec::cli

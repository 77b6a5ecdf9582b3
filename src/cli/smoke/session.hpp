// One run of the smoke test: the state directory, daemon and sandbox that its steps share, and the
// steps themselves in their order. Blocking; main thread.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/config.hpp"
#include "base/result.hpp"
#include "cli/smoke/own_daemon.hpp"
#include "net/client/ws_client.hpp"

namespace dsec::cli::smoke {

struct session {
  base::config config;              // of the instance of its own
  std::filesystem::path directory;  // scratch; config.state lies in it
  std::optional<own_daemon> daemon{};
  std::optional<client::ws_client> connection{};
  std::string sandbox{};

  /// A step's outcome is what was seen.
  base::result<std::string> make_image();
  base::result<std::string> start();
  base::result<std::string> create();
  base::result<std::string> exec();
  base::result<std::string> isolate();
  base::result<std::string> kill_command();
  base::result<std::string> recover();
  base::result<std::string> stop();
  base::result<std::string> clean_up();

 private:
  struct outcome {
    std::string out;
    int exit_code = 0;
    bool ended = false;
  };

  static outcome outcome_of(proto::Command::Reader c);
  base::result<void> start_daemon();
  base::result<client::reply> call(const std::function<void(proto::Request::Builder)>& fill);
  base::result<outcome> run(const std::string& id, const std::vector<std::string>& argv,
                            bool wait = true);
  base::result<outcome> wait_for(const std::string& id);
};

struct step {
  const char* name;
  base::result<std::string> (session::*run)();
};

std::span<const step> all_steps();

/// What of the session's instance is on the host: processes, groups, mounts; a line each.
std::vector<std::string> left_on_host(const base::config& config);

}  // namespace dsec::cli::smoke

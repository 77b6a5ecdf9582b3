// What the roles of `dsecd serve` have in common. Main thread.
#pragma once

#include <signal.h>

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "base/config.hpp"
#include "base/result.hpp"

namespace dsec::cli {

/// Several times what the stop of one sandbox takes at most: with all kill threads held up by
/// processes that cannot be killed, the others still get their turn.
inline constexpr std::chrono::seconds stop_grace{60};

/// Ends the sandboxes as well.
inline constexpr int stop_all_signal = SIGUSR1;

/// Before any thread exists, so that all inherit the mask and only sigwait() takes the signals.
sigset_t block_stop_signals();

/// One principal today, "root": whoever can read the state directory.
std::function<std::optional<std::string>(std::string_view)> authenticator(std::string key);

std::string url_of(const base::gateway_config& gateway, std::uint16_t port);

base::result<void> serve_coordinator(const base::config& c);

}  // namespace dsec::cli

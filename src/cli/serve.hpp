// What the roles of `dsecd serve` have in common. Main thread.
#pragma once

#include <signal.h>

#include <chrono>
#include <string>

#include "base/config.hpp"
#include "base/result.hpp"
#include "cli/reload.hpp"

namespace dsec::cli {

/// Several times what the stop of one sandbox takes at most: with all kill threads held up by
/// processes that cannot be killed, the others still get their turn.
inline constexpr std::chrono::seconds stop_grace{60};

/// Ends the sandboxes as well.
inline constexpr int stop_all_signal = SIGUSR1;

/// Those that are waited for: all of them stop, except SIGHUP. Before any thread exists, so that
/// all inherit the mask.
sigset_t block_signals();

base::result<void> serve_coordinator(const base::config& c, reloader::reader read);

}  // namespace dsec::cli

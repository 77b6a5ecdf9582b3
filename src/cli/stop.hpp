// Ending the daemon of a state directory from another process, with its sandboxes or without.
// Blocking; main thread.
#pragma once

#include <chrono>

#include "base/config.hpp"
#include "base/result.hpp"
#include "cli/unattended.hpp"

namespace dsec::cli {

/// Longer than dsecd gives itself (serve.cpp).
inline constexpr std::chrono::seconds stop_patience{90};

/// Ends the daemon, if one runs, and every sandbox, also when none does. Says on stdout what it
/// ended; answers what the daemon had left. errc::deadline_exceeded when the daemon is not gone
/// after `patience`.
base::result<what_was_left> stop_everything(const base::config& c, std::chrono::seconds patience);

}  // namespace dsec::cli

// Runs a probe in a child process with a mount namespace of its own: whatever it mounts, changes in
// itself or leaves open ends with it. For a process with one thread. Blocking.
#pragma once

#include <functional>
#include <string>

#include "base/result.hpp"

namespace dsec::cli::doctor {

using probe = std::function<base::result<std::string>()>;

/// errc::unsupported with the probe's own words when it failed, errc::deadline_exceeded when it did
/// not end in 10 s (it is killed; one that does not die of that is left behind).
base::result<std::string> apart(const probe& p);

}  // namespace dsec::cli::doctor

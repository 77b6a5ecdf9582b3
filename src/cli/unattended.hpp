// A state directory that no daemon holds: what runs on from the last one, and how to end that.
// Blocking; main thread; as root.
#pragma once

#include <cstddef>

#include "base/config.hpp"
#include "base/paths.hpp"
#include "base/result.hpp"
#include "cli/state_dir.hpp"

namespace dsec::cli {

/// How many sandboxes the records say run on.
base::result<std::size_t> count_living(const base::paths& where);

/// Ends all that the last daemon has left running or half-made, and records it as stopped. How many
/// sandboxes that were. The caller holds the lock, so that no daemon takes them up meanwhile.
base::result<std::size_t> end_what_is_left(const state_lock& lock, const base::config& c);

}  // namespace dsec::cli

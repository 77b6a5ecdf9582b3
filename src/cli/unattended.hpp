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

struct what_was_left {
  std::size_t sandboxes = 0;    // as far as the records could be read
  base::result<void> recorded;  // an error: they do not say that it has ended
};

/// Ends all that the last daemon has left running or half-made, and records it as stopped. The
/// caller holds the lock, so that no daemon takes it up meanwhile. An error: not all has ended.
base::result<what_was_left> end_what_is_left(const state_lock& lock, const base::config& c);

}  // namespace dsec::cli

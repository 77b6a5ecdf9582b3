// What the container backend needs of a host, each found by doing it, with a remedy where it is
// missing. Blocking; leaves nothing behind, and clears what a probe that was killed has left. For
// start-up.
#pragma once

#include <filesystem>
#include <vector>

#include "backends/backend.hpp"
#include "base/config.hpp"

namespace dsec::container {

/// Works as an instance of its own, `<instance>-probe` in `<state>/probe`, with the worker's user
/// ids. `state` must exist: uppers and layers lie on its file system; its lock is the caller's.
std::vector<backends::probe_item> probe_host(const std::filesystem::path& state,
                                             const base::node_config& worker);

}  // namespace dsec::container

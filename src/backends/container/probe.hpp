// What the container backend needs of a host, each found by doing it, with a remedy where it is
// missing. Blocking; leaves nothing behind. For start-up and `dsecd doctor`.
#pragma once

#include <filesystem>
#include <vector>

#include "backends/backend.hpp"

namespace dsec::container {

/// `state` must exist: uppers and layers lie on its file system.
std::vector<backends::probe_item> probe_host(const std::filesystem::path& state);

}  // namespace dsec::container

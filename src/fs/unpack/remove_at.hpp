// Directories by descriptor: what is in them, and taking it away. Follows no link. One thread.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"

namespace dsec::fs::unpack {

/// Without "." and "..".
base::result<std::vector<std::string>> names_in(int directory);

/// rm -rf of one name. Its depth is bounded by whoever made it (max_path_depth).
base::result<void> remove_at(int directory, const std::string& name);

}  // namespace dsec::fs::unpack

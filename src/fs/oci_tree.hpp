// From an OCI image to its tree: what every source of such images ends with. Blocking; any thread;
// needs root. Errors name the image's layer.
#pragma once

#include <filesystem>

#include "base/result.hpp"
#include "fs/oci_layout.hpp"
#include "fs/source.hpp"

namespace dsec::fs {

/// Makes `root` and fills it; what was left out is told as "found". Returns `root`.
base::result<std::filesystem::path> unpack_tree(const oci_image& image,
                                                const std::filesystem::path& root,
                                                const unpack::limits& most, const progress& tell);

}  // namespace dsec::fs

// Puts the layers of an image into one tree, in their order (opencontainers/image-spec, layer.md):
// names, contents, holes, owners, modes, times, hard links and allowed attributes as they are,
// whiteouts done. Device nodes and other attributes are left out and told. Blocking; one thread.
// Fails with invalid_argument (names layer and entry), too_large (names the limit), corrupt, io.
#pragma once

#include "base/result.hpp"
#include "base/unique_fd.hpp"
#include "fs/unpack/plan.hpp"

namespace dsec::fs::unpack {

/// `root` is an empty directory, `blobs` are those of p.layers (open_blob).
base::result<report> apply_layers(const plan& p, base::unique_fd root,
                                  std::vector<base::unique_fd> blobs);

}  // namespace dsec::fs::unpack

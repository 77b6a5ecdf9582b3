#include "fs/oci_tree.hpp"

#include "fs/files.hpp"
#include "fs/unpack_image.hpp"

namespace dsec::fs {

base::result<std::filesystem::path> unpack_tree(const oci_image& image,
                                                const std::filesystem::path& root,
                                                const unpack::limits& most, const progress& tell) {
  tell("unpack",
       std::to_string(image.layers.size()) + " layers of manifest sha256:" + image.manifest_digest);
  DSEC_CHECK(make_private_directories(root));
  DSEC_TRY(const auto report, unpack_image({root, most, image.layers}));
  for (const auto& line : report.findings) tell("found", line);
  return root;
}

}  // namespace dsec::fs

// Looks over a directory tree before it becomes a layer: what has to be left out, what cannot be
// imported, how much room it takes, and a fingerprint that changes whenever anything in the tree
// does. Reads only; follows no link. Blocking; any thread. Fails with invalid_argument (owner out
// of range, another file system inside, path too long: the message names the file), too_large, or
// the errno of a file that cannot be read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/result.hpp"

namespace dsec::fs {

/// Ids that a sandbox can show: it maps 0..65535.
inline constexpr std::uint32_t max_layer_id = 65'535;
inline constexpr std::uint64_t max_tree_entries = 8'000'000;
/// Left-out files travel as command-line arguments of mkfs.erofs.
inline constexpr std::size_t max_excluded_bytes = 512U << 10U;

struct tree_summary {
  std::uint64_t entries = 0;
  std::uint64_t image_bytes = 0;      // of contents, names and inodes: a lower bound of the image
  std::vector<std::string> excluded;  // device nodes and sockets, relative paths
  std::uint64_t devices = 0, sockets = 0;
  std::string longest_name;  // the path of the entry whose own name is longest
  std::string fingerprint;   // of names, modes, owners, sizes, inode numbers, mtimes and ctimes
};

base::result<tree_summary> scan_tree(const std::filesystem::path& root);

}  // namespace dsec::fs

// Turns a directory tree into an EROFS image with mkfs.erofs. Equal trees give equal bytes
// (docs/adr/0003). Blocking; any thread. errc::unsupported without mkfs.erofs, errc::io when the
// disk is full (checked before too).
#pragma once

#include <chrono>
#include <filesystem>

#include "base/result.hpp"
#include "fs/tree_scan.hpp"

namespace dsec::fs {

/// Changes whenever the same tree would give other bytes than before; part of every fingerprint.
inline constexpr int conversion_version = 1;

inline constexpr std::chrono::minutes conversion_timeout{30};

/// `scan` is scan_tree(tree)'s answer. The tree is only read. `target` must not lie inside it.
base::result<void> make_erofs(const std::filesystem::path& tree, const tree_summary& scan,
                              const std::filesystem::path& target);

}  // namespace dsec::fs

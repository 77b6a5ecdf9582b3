// Images of this worker: named, tagged manifests over content-addressed EROFS blobs (paths.hpp shows where).
// Class power: a manifest is written tmp + fsync + rename after its blob is. Safe for several processes at once
// (imports of one name are single-flight by a lock file). Blocking; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/paths.hpp"
#include "base/result.hpp"
#include "fs/image_config.hpp"

namespace dsec::fs {

enum class layer_kind : std::uint8_t { base, workspace, toolkit };

std::string_view to_string(layer_kind k);
base::result<layer_kind> parse_layer_kind(std::string_view text);

struct image {
  layer_kind kind = layer_kind::base;
  std::string name;
  std::string tag;
  std::string digest;                 // hex of the blob's SHA-256
  std::uint64_t size_bytes = 0;       // of the blob
  std::uint64_t created_unix_ms = 0;
  image_config config;
};

class image_store {
 public:
  explicit image_store(base::paths paths) : paths_(std::move(paths)) {}

  /// `reference` is NAME or NAME:TAG (tag defaults to "latest"). errc::not_found names the images there are.
  [[nodiscard]] base::result<image> find(layer_kind kind, std::string_view reference) const;
  [[nodiscard]] base::result<std::vector<image>> list() const;
  /// Removes the manifest, and the blob when no other manifest names it.
  base::result<void> remove(layer_kind kind, std::string_view reference);
  [[nodiscard]] std::filesystem::path blob(std::string_view digest) const;

  /// Takes a finished EROFS file (moved) under the name. Used by import.
  base::result<image> add(layer_kind kind, std::string_view reference, const std::filesystem::path& erofs,
                          image_config config);

 private:
  base::paths paths_;
};

}  // namespace dsec::fs

// Images of this worker: named, tagged manifests over content-addressed EROFS blobs (paths.hpp
// shows where). Class power: a manifest is written tmp + fsync + rename after its blob is. Safe for
// several processes at once: adding and removing hold <state>/images/locks/store, so a blob never
// goes while a manifest is about to name it. Blocking; any thread. Fails with not_found (names what
// there is), corrupt (names the file), io.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/paths.hpp"
#include "base/result.hpp"
#include "fs/image_config.hpp"
#include "fs/image_name.hpp"

namespace dsec::fs {

struct image {
  layer_kind kind = layer_kind::base;
  std::string name;
  std::string tag;
  std::string digest;            // hex of the blob's SHA-256
  std::uint64_t size_bytes = 0;  // of the blob
  std::uint64_t created_unix_ms = 0;
  image_config config;
  std::string source;       // what it was imported from, as the user wrote it
  std::string fingerprint;  // of that source and the conversion, see fs/source.hpp
};

class manifest_cache;

class image_store {
 public:
  explicit image_store(base::paths paths);

  /// `reference` is NAME or NAME:TAG (tag defaults to "latest"). errc::not_found names the images
  /// there are. What was found before is not read again while its manifest's file is unchanged.
  [[nodiscard]] base::result<image> find(layer_kind kind, std::string_view reference) const;
  /// Sorted by kind, name, tag. Damaged manifests are left out and, when asked for, described in
  /// `damaged`.
  [[nodiscard]] base::result<std::vector<image>> list(
      std::vector<base::error>* damaged = nullptr) const;
  /// Removes the manifest, a damaged one too, and the blob when no other manifest names it.
  base::result<void> remove(layer_kind kind, std::string_view reference);
  [[nodiscard]] std::filesystem::path blob(std::string_view digest) const;
  /// Reads the whole blob: errc::not_found when it is missing, errc::corrupt when it is not what
  /// its name says.
  [[nodiscard]] base::result<void> verify(std::string_view digest) const;

  /// Takes a finished EROFS file (moved) under the name, in place of what had it. Used by import.
  base::result<image> add(layer_kind kind, std::string_view reference,
                          const std::filesystem::path& erofs, image_config config,
                          std::string source = {}, std::string fingerprint = {});

  /// Makes the directories below <state>/images.
  base::result<void> prepare() const;

 private:
  [[nodiscard]] std::filesystem::path manifest_file(const image_name& name) const;
  [[nodiscard]] base::result<image> load(const image_name& name) const;
  [[nodiscard]] base::result<image> load_cached(const image_name& name) const;
  [[nodiscard]] base::error not_found(const image_name& wanted) const;
  base::result<void> take_blob(const std::filesystem::path& erofs, const std::string& digest);
  base::result<void> write_manifest(const image_name& name, std::string_view text);
  /// Under the lock: unlinks every blob that no manifest names, also what a killed add left. Keeps
  /// all of them while a manifest cannot be read.
  base::result<void> drop_unnamed_blobs();

  base::paths paths_;
  std::shared_ptr<manifest_cache> cache_;  // copies share it
};

}  // namespace dsec::fs

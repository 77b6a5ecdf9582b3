// What the import tests share: a state directory and a source tree of their own, a PATH with
// stand-ins for tools, a mounted look into what was made. Needs root; everything is gone after the
// destructor.
#pragma once

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "fs/import.hpp"
#include "support/temp_dir.hpp"

namespace dsec::tests {

/// For INFO: the error of a result, or nothing.
template <class T>
std::string why(const base::result<T>& r) {
  return r ? std::string() : r.error().to_string();
}

/// Why imports cannot be tested here; empty when they can.
std::string import_missing();

class import_rig {
 public:
  import_rig();
  ~import_rig();
  import_rig(const import_rig&) = delete;
  import_rig& operator=(const import_rig&) = delete;

  base::result<fs::image> import(const std::string& reference, const std::string& source,
                                 std::optional<std::filesystem::path> config = std::nullopt,
                                 fs::layer_kind kind = fs::layer_kind::base);

  /// Puts a shell script before all tools in PATH.
  void stand_in(const std::string& tool, const std::string& script);
  /// Stand-ins for apt-get and apt-config that report one mirror of bookworm.
  void stand_in_apt();

  /// Files and directories below <state>/images/tmp.
  [[nodiscard]] std::vector<std::string> leftovers() const;
  [[nodiscard]] std::size_t blobs() const;
  /// Everything that imports have told, "step: detail".
  std::vector<std::string> told();

  temp_dir dir;
  std::filesystem::path tree = dir / "tree";
  base::paths paths{dir / "state"};
  fs::image_store store{paths};

 private:
  std::mutex mutex_;
  std::vector<std::string> told_;
  std::string old_path_;
};

/// A blob, mounted read-only while the object lives.
class mounted_image {
 public:
  explicit mounted_image(const std::filesystem::path& blob);
  ~mounted_image();
  mounted_image(const mounted_image&) = delete;
  mounted_image& operator=(const mounted_image&) = delete;
  [[nodiscard]] const std::filesystem::path& root() const { return root_; }

 private:
  temp_dir dir_;
  std::filesystem::path root_ = dir_ / "mnt";
};

/// Extended attributes by name, trusted.* included.
std::vector<std::pair<std::string, std::string>> attributes(const std::filesystem::path& file);

/// What differs between two trees: names, types, modes, owners, mtimes, links, contents, extended
/// attributes. Empty when they are equal. Relative paths in `except` are expected to be missing
/// from `copy`.
std::vector<std::string> differences(const std::filesystem::path& original,
                                     const std::filesystem::path& copy,
                                     const std::vector<std::string>& except = {});

}  // namespace dsec::tests

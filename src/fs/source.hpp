// Where an image comes from. To add a kind of source: one file source_<kind>.cpp with a subclass
// and an opener declared at the end of this header, and a row in source.cpp's table. Blocking; any
// thread.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "fs/image_config.hpp"
#include "fs/unpack/plan.hpp"

namespace dsec::fs {

/// Told what an import is doing: a step ("wait", "build", "convert", "store") and a line about it.
using progress = std::function<void(std::string_view step, std::string_view detail)>;

class image_source {
 public:
  virtual ~image_source() = default;

  /// Equal for equal inputs.
  virtual base::result<std::string> fingerprint() = 0;
  /// Whether an equal fingerprint means an equal tree. Otherwise (a package mirror moves on) it
  /// only means that the same was asked for, and an image is reused only when it was built while
  /// this import waited.
  [[nodiscard]] virtual bool pinned() const = 0;
  /// Makes or finds the tree. `scratch` is an empty private directory for whatever has to be built.
  virtual base::result<std::filesystem::path> materialise(const std::filesystem::path& scratch,
                                                          const progress& tell) = 0;
  /// What it says itself, known once it is materialised; goes before a file in its tree.
  [[nodiscard]] virtual std::optional<image_config> own_config() const { return std::nullopt; }
  /// For images that bring no configuration of their own.
  [[nodiscard]] virtual image_config default_config() const { return {}; }
};

struct source_options {
  unpack::limits limits;           // of images made of layers
  bool insecure_registry = false;  // plain HTTP, or a certificate that nobody vouches for
};

using source_ptr = std::unique_ptr<image_source>;

/// "debian:SUITE+PACKAGE,…", "docker://REFERENCE", "oci:DIRECTORY[:TAG]", "docker-archive:FILE" or
/// the path of a directory.
base::result<source_ptr> open_source(std::string_view text, const source_options& options = {});

// Each is given what follows its prefix.
base::result<source_ptr> open_directory_source(std::string_view path, const source_options&);
base::result<source_ptr> open_debian_source(std::string_view suite_and_packages,
                                            const source_options&);
base::result<source_ptr> open_oci_source(std::string_view directory_and_tag,
                                         const source_options& options);
base::result<source_ptr> open_registry_source(std::string_view reference,
                                              const source_options& options);
base::result<source_ptr> open_archive_source(std::string_view file, const source_options& options);

}  // namespace dsec::fs

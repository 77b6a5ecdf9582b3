// Where an image comes from. To add a kind of source: one file source_<kind>.cpp with a subclass
// and an opener declared at the end of this header, and a row in source.cpp's table. Blocking; any
// thread.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "fs/image_config.hpp"

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
  /// For images that bring no configuration of their own.
  [[nodiscard]] virtual image_config default_config() const { return {}; }
};

/// "debian:SUITE+PACKAGE,…" or the path of a directory.
base::result<std::unique_ptr<image_source>> open_source(std::string_view text);

base::result<std::unique_ptr<image_source>> open_directory_source(std::string_view path);
base::result<std::unique_ptr<image_source>> open_debian_source(std::string_view suite_and_packages);

}  // namespace dsec::fs

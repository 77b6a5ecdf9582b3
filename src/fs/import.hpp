// Makes an image from a source: lock the name, build in a staging directory, convert to EROFS, add
// to the store. Blocking (seconds to minutes); any thread, any process: imports of one name are
// single-flight, and those that waited take the result of the one they waited for when it is what
// they were asked for. On failure nothing is left: no file, no process. What a killed import leaves
// goes with the next one.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "base/paths.hpp"
#include "base/result.hpp"
#include "fs/image_store.hpp"
#include "fs/source.hpp"

namespace dsec::fs {

/// `source` as open_source() takes it. The configuration is `config_file` if given, else the
/// source's own, else /.dsec/image.json inside it, else the source's default.
base::result<image> import_image(const base::paths& paths, layer_kind kind,
                                 std::string_view reference, std::string_view source,
                                 const std::optional<std::filesystem::path>& config_file,
                                 const progress& tell, const source_options& options = {});

}  // namespace dsec::fs

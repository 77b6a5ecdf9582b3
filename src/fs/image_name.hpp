// How images are named: a kind, a name [a-z0-9][a-z0-9._-]* and a tag [A-Za-z0-9._-]+, written
// NAME:TAG. Both become parts of file names, so nothing else is let through. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace dsec::fs {

enum class layer_kind : std::uint8_t { base, workspace, toolkit };

std::string_view to_string(layer_kind k);
base::result<layer_kind> parse_layer_kind(std::string_view text);

inline constexpr std::size_t max_image_name_bytes =
    100;  // of name and tag each: both fit one file name

struct image_name {
  layer_kind kind = layer_kind::base;
  std::string name;
  std::string tag;

  bool operator==(const image_name&) const = default;
  /// "NAME:TAG"
  [[nodiscard]] std::string reference() const { return name + ":" + tag; }
  /// "base image NAME:TAG", for messages.
  [[nodiscard]] std::string describe() const;
  /// "NAME@TAG.json"
  [[nodiscard]] std::string file_name() const { return name + "@" + tag + ".json"; }
};

/// `reference` is NAME or NAME:TAG; the tag defaults to "latest".
base::result<image_name> parse_image_name(layer_kind kind, std::string_view reference);

/// The inverse of image_name::file_name().
base::result<image_name> parse_manifest_file_name(layer_kind kind, std::string_view file_name);

}  // namespace dsec::fs

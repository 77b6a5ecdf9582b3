// The JSON of an OCI image (opencontainers/image-spec: descriptor.md, image-index.md, manifest.md,
// config.md), and Docker's of the same shape. Untrusted: sizes, nesting and counts are bounded, and
// what is not understood is refused by name. Pure; any thread. `what` names the text in errors.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "fs/image_config.hpp"
#include "fs/unpack/plan.hpp"

namespace dsec::fs {

inline constexpr std::size_t max_oci_manifests = 1024;  // of an index
inline constexpr std::size_t max_oci_layers = 512;

struct oci_platform {
  std::string os, architecture, variant;
  /// "linux/arm64/v8"
  [[nodiscard]] std::string describe() const;
};

struct oci_descriptor {
  std::string media_type;
  std::string digest;  // hex of a SHA-256
  std::uint64_t size = 0;
  std::string reference;  // annotation org.opencontainers.image.ref.name, else empty
  std::optional<oci_platform> platform;

  /// Names a list of manifests, not one.
  [[nodiscard]] bool is_index() const;
};

struct oci_layer {
  oci_descriptor blob;
  unpack::compression packed = unpack::compression::none;
};

struct oci_manifest {
  oci_descriptor config;
  std::vector<oci_layer> layers;  // bottom first
};

struct oci_image_config {
  oci_platform platform;
  std::vector<std::string> diff_ids;  // hex
  image_config config;
};

base::result<std::vector<oci_descriptor>> parse_oci_index(std::string_view json,
                                                          std::string_view what);
base::result<oci_manifest> parse_oci_manifest(std::string_view json, std::string_view what);
base::result<oci_image_config> parse_oci_config(std::string_view json, std::string_view what);
/// The file oci-layout: whether this is a version that is understood.
base::result<void> check_oci_layout(std::string_view json, std::string_view what);

}  // namespace dsec::fs

// An OCI image layout (opencontainers/image-spec, image-layout.md) on disk: the image in it that is
// meant, chosen by tag and by this machine's platform. Everything read is held against its digest;
// layers are not read. Blocking; any thread. Fails with not_found (lists what there is),
// invalid_argument, unsupported (platform, media type), corrupt (names the blob), too_large.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "fs/oci_json.hpp"
#include "fs/unpack/plan.hpp"

namespace dsec::fs {

inline constexpr int max_oci_nesting = 4;  // of indexes in indexes

struct oci_image {
  std::string manifest_digest;  // hex; tells everything of the image
  image_config config;
  std::vector<unpack::layer> layers;  // bottom first
};

/// `tag` may be empty when there is one image only.
base::result<oci_image> read_oci_image(const std::filesystem::path& layout, std::string_view tag);

/// The one of an index that is for this machine; the only one is taken as it is.
std::optional<oci_descriptor> own_image(const std::vector<oci_descriptor>& manifests);

/// What an index has, for messages: "linux/amd64, linux/arm64/v8".
std::string platforms_of(const std::vector<oci_descriptor>& manifests);

/// "linux" and this machine's architecture in OCI's words.
oci_platform own_platform();

}  // namespace dsec::fs

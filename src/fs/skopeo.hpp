// skopeo, which speaks to registries and reads what `docker save` wrote: copies one image into an
// OCI layout of our own. Of an image the manifest is read first (skopeo makes one of an archive,
// which takes reading it), and none is copied that has too many layers or too large ones. Blocking,
// up to skopeo_timeout; any thread. unsupported when it is not installed; not_found,
// unauthenticated, unavailable or io by what it says, corrupt otherwise.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "base/result.hpp"
#include "fs/source.hpp"

namespace dsec::fs {

inline constexpr std::chrono::minutes skopeo_timeout{30};
inline constexpr std::string_view skopeo_tag = "image";  // of the image in the layout

struct skopeo_copy {
  std::string from;               // "docker://…" or "docker-archive:…"
  std::filesystem::path layout;   // made by it
  std::filesystem::path scratch;  // an empty directory
  bool insecure_registry = false;
  std::uint64_t max_bytes = 0;  // of the blobs together, as the manifest says; of any file
};

base::result<void> copy_by_skopeo(const skopeo_copy& wanted, const progress& tell);

}  // namespace dsec::fs

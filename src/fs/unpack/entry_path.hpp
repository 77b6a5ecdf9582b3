// Names of tar entries made into paths below a root: "/", "./", "//" and a "/" at the end mean
// nothing, ".." is refused, and what OCI says with names (whiteouts) is told apart. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace dsec::fs::unpack {

struct entry_path {
  std::string directory;  // "" = the root
  std::string name;       // "" = the root itself

  [[nodiscard]] std::string full() const {
    return directory.empty() ? name : directory + "/" + name;
  }
};

/// errc::invalid_argument, naming it, for what leads out or has no meaning.
base::result<entry_path> parse_entry_path(std::string_view raw);

enum class marker : std::uint8_t { none, whiteout, opaque };

struct marked_name {
  marker what = marker::none;
  std::string hidden;  // of a whiteout: what it takes away
};

/// opencontainers/image-spec, layer.md: ".wh.NAME" and ".wh..wh..opq".
base::result<marked_name> parse_marker(const entry_path& path);

}  // namespace dsec::fs::unpack

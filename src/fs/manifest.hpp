// The manifest of an image as JSON: what <state>/images/manifests/<kind>/<name>@<tag>.json holds.
// Pure; any thread. A manifest that does not decode, or that is not what its file name says, is
// errc::corrupt.
#pragma once

#include <string>
#include <string_view>

#include "base/result.hpp"
#include "fs/image_store.hpp"

namespace dsec::fs {

std::string encode_manifest(const image& image);
base::result<image> decode_manifest(std::string_view text, const image_name& expected,
                                    std::string_view file);

}  // namespace dsec::fs

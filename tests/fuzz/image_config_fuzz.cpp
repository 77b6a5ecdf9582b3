// Image configurations come with images, from anywhere. Whatever is accepted survives being written
// and read again, and merges into something with a PATH.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "fs/image_config.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dsec::fs;
  const auto config = parse_image_config({reinterpret_cast<const char*>(data), size}, "input");
  if (!config) return 0;
  const auto again = parse_image_config(to_json(*config), "output");
  if (!again || *again != *config) std::abort();
  const auto merged = merge(*config, &*config, std::vector{*config, *config});
  bool path = false;
  for (const auto& [name, value] : merged.env) path = path || name == "PATH";
  if (!path) std::abort();
  return 0;
}

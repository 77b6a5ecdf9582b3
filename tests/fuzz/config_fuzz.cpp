// Configuration files. Whatever is accepted reads back the same from its dump, and whatever is not
// has an error that names the file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/config.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace dsec::base;
  const auto parsed = parse_config({reinterpret_cast<const char*>(data), size}, "input.toml");
  if (!parsed) {
    if (parsed.error().message.find("input.toml") != 0) std::abort();
    return 0;
  }
  const auto dumped = dump_config(*parsed);
  const auto again = parse_config(dumped, "dump");
  if (!again || dump_config(*again) != dumped) std::abort();
  return 0;
}

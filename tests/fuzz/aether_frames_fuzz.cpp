// What a sandbox's aether, were it taken over, may send to dsecd: bytes to a decoded datagram.
// Errors are values; what is accepted has a valid id.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <type_traits>

#include "backends/container/aether_frames.hpp"
#include "base/ids.hpp"

using namespace dsec;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto in = container::decode(std::as_bytes(std::span(data, size)));
  if (!in) return 0;
  std::visit(
      [](const auto& body) {
        if constexpr (requires { body.id; }) {
          if (!base::is_valid_command_id(body.id)) std::abort();
        }
      },
      in->body);
  return 0;
}

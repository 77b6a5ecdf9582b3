// Where the linker put the guest programs (cmake/Embed.cmake).
#include "base/embedded.hpp"

#ifdef DSEC_GUEST
extern "C" {
extern const std::byte dsec_launcher_image_begin[], dsec_launcher_image_end[];
extern const std::byte dsec_aether_image_begin[], dsec_aether_image_end[];
}
#endif

namespace dsec::base {

#ifdef DSEC_GUEST
std::span<const std::byte> embedded_launcher() {
  return {dsec_launcher_image_begin, dsec_launcher_image_end};
}
std::span<const std::byte> embedded_aether() {
  return {dsec_aether_image_begin, dsec_aether_image_end};
}
#else
std::span<const std::byte> embedded_launcher() {
  return {};
}
std::span<const std::byte> embedded_aether() {
  return {};
}
#endif

}  // namespace dsec::base

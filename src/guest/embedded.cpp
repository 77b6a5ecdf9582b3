// Where the linker put the guest programs (cmake/Embed.cmake). Test builds run those in the
// directory $DSEC_GUEST instead, if it is set: for the guests of an earlier release.
#include "base/embedded.hpp"

#ifdef DSEC_FAILPOINTS
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>
#endif

#ifdef DSEC_GUEST
extern "C" {
extern const std::byte dsec_launcher_image_begin[], dsec_launcher_image_end[];
extern const std::byte dsec_aether_image_begin[], dsec_aether_image_end[];
extern const std::byte dsec_attack_begin[], dsec_attack_end[];
}
#endif

namespace dsec::base {
namespace {

#ifdef DSEC_FAILPOINTS
/// Empty when no other is wanted; the process ends when one is and cannot be read.
std::vector<char> read_other(const char* program) {
  const char* directory = std::getenv("DSEC_GUEST");
  if (directory == nullptr) return {};
  std::ifstream file(std::string(directory) + "/" + program, std::ios::binary);
  std::vector<char> image{std::istreambuf_iterator<char>(file), {}};
  if (image.empty()) std::abort();
  return image;
}
#endif

}  // namespace

std::span<const std::byte> embedded_launcher() {
#ifdef DSEC_FAILPOINTS
  static const auto other = read_other("launcher");
  if (!other.empty()) return std::as_bytes(std::span(other));
#endif
#ifdef DSEC_GUEST
  return {dsec_launcher_image_begin, dsec_launcher_image_end};
#else
  return {};
#endif
}

std::span<const std::byte> embedded_aether() {
#ifdef DSEC_FAILPOINTS
  static const auto other = read_other("aether");
  if (!other.empty()) return std::as_bytes(std::span(other));
#endif
#ifdef DSEC_GUEST
  return {dsec_aether_image_begin, dsec_aether_image_end};
#else
  return {};
#endif
}

std::span<const std::byte> embedded_attack() {
#ifdef DSEC_GUEST
  return {dsec_attack_begin, dsec_attack_end};
#else
  return {};
#endif
}

}  // namespace dsec::base

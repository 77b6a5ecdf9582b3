// Where the linker put the guest programs (cmake/Embed.cmake). Test builds run those in the
// directory $DSEC_GUEST instead, if it is set: for the guests of an earlier release.
#include "base/embedded.hpp"

#ifdef DSEC_GUEST
extern "C" {
extern const std::byte dsec_launcher_image_begin[], dsec_launcher_image_end[];
extern const std::byte dsec_aether_image_begin[], dsec_aether_image_end[];
}
#endif

#ifdef DSEC_FAILPOINTS
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>
#endif

namespace dsec::base {
namespace {

#if defined(DSEC_GUEST) && defined(DSEC_FAILPOINTS)
/// Empty when no other is wanted; the process ends when one is and cannot be read.
std::vector<char> read_other(const char* program) {
  const char* directory = std::getenv("DSEC_GUEST");
  if (directory == nullptr) return {};
  std::ifstream file(std::string(directory) + "/" + program, std::ios::binary);
  std::vector<char> image{std::istreambuf_iterator<char>(file), {}};
  if (image.empty()) std::abort();
  return image;
}

std::span<const std::byte> or_other(const std::vector<char>& other,
                                    std::span<const std::byte> own) {
  return other.empty() ? own : std::as_bytes(std::span(other));
}
#endif

}  // namespace

#ifndef DSEC_GUEST
std::span<const std::byte> embedded_launcher() {
  return {};
}
std::span<const std::byte> embedded_aether() {
  return {};
}
#elif defined(DSEC_FAILPOINTS)
std::span<const std::byte> embedded_launcher() {
  static const auto other = read_other("launcher");
  return or_other(other, {dsec_launcher_image_begin, dsec_launcher_image_end});
}
std::span<const std::byte> embedded_aether() {
  static const auto other = read_other("aether");
  return or_other(other, {dsec_aether_image_begin, dsec_aether_image_end});
}
#else
std::span<const std::byte> embedded_launcher() {
  return {dsec_launcher_image_begin, dsec_launcher_image_end};
}
std::span<const std::byte> embedded_aether() {
  return {dsec_aether_image_begin, dsec_aether_image_end};
}
#endif

}  // namespace dsec::base

#include "base/text.hpp"

#include <algorithm>

namespace dsec::base {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";  // U+FFFD

bool is_continuation(char c) {
  return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

/// Length of the character at the beginning of `text`; 0 when there is none (table 3-7 of the
/// Unicode standard).
std::size_t character(std::string_view text) {
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const auto first = at(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if (!is_continuation(text[i])) return 0;
  }
  const auto second = at(1);
  if (first == 0xE0 && second < 0xA0) return 0;  // overlong
  if (first == 0xED && second > 0x9F) return 0;  // surrogates
  if (first == 0xF0 && second < 0x90) return 0;  // overlong
  if (first == 0xF4 && second > 0x8F) return 0;  // over U+10FFFF
  return length;
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto length = character(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string as_utf8(std::string_view bytes) {
  return shown(bytes, std::string::npos);
}

std::string shown(std::string_view bytes, std::size_t limit) {
  std::string out;
  out.reserve(std::min(bytes.size(), limit));
  while (!bytes.empty()) {
    const auto length = character(bytes);
    const auto next = length == 0 ? replacement : bytes.substr(0, length);
    if (next.size() > limit - out.size()) break;
    out += next;
    bytes.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

std::string hex(std::string_view bytes) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string out;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    out += digits[byte >> 4U];
    out += digits[byte & 15U];
  }
  return out;
}

}  // namespace dsec::base

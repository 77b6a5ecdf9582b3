// Text from outside (file names in a tree, names that users gave) made fit for a message: bounded,
// on one line, and with nothing in it that could disturb a terminal. Pure; any thread.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace dsec::fs {

inline std::string printable(std::string_view text, std::size_t limit = 200) {
  std::string out(text.substr(0, limit));
  std::ranges::replace_if(
      out, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return out + (text.size() > limit ? "..." : "");
}

}  // namespace dsec::fs

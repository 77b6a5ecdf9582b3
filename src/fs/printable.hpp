// Text from outside (file names in a tree, names that users gave) made fit for a message: bounded,
// on one line, and with nothing in it that could disturb a terminal. Pure; any thread.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "base/text.hpp"

namespace dsec::fs {

inline std::string printable(std::string_view text, std::size_t limit = 200) {
  auto out = base::shown(text, limit);
  std::ranges::replace_if(
      out, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return out + (text.size() > limit ? "..." : "");
}

}  // namespace dsec::fs

#include "base/json_shape.hpp"

#include <algorithm>

namespace dsec::base {

json_shape shape_of_json(std::string_view text) {
  json_shape shape{0, 1};
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
      continue;
    }
    switch (c) {
      case '"':
        in_string = true;
        break;
      case '[':
      case '{':
        shape.depth = std::max(shape.depth, ++depth);
        ++shape.values;  // its first element
        break;
      case ',':
        ++shape.values;
        break;
      case ']':
      case '}':
        if (depth > 0) --depth;
        break;
      default:
        break;
    }
  }
  return shape;
}

}  // namespace dsec::base

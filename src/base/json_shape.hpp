// What a JSON text will cost a parser, seen before it is parsed: a text of some kilobytes can hold
// values that take megabytes, or nest deeper than a reader can follow. Pure; any thread.
#pragma once

#include <cstddef>
#include <string_view>

namespace dsec::base {

/// Exact for well-formed text; for any other text upper bounds of what a parser can reach before it
/// stops.
struct json_shape {
  std::size_t depth = 0;   // of brackets in each other
  std::size_t values = 0;  // members and elements, and what they hold
};

/// One pass, no memory.
json_shape shape_of_json(std::string_view text);

}  // namespace dsec::base

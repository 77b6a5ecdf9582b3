#include "fs/bounded_json.hpp"

#include <string>

namespace dsec::fs {
namespace {

using base::errc;
using base::fail;

/// Deepest nesting of brackets outside strings. Right for well-formed text, and for any other text
/// an upper bound of what the parser can reach before it stops.
std::size_t depth_of(std::string_view text) {
  std::size_t depth = 0;
  std::size_t deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

base::result<nlohmann::json> parse_bounded_json(std::string_view text, std::string_view what) {
  if (text.size() > max_json_bytes) {
    return fail(errc::too_large,
                std::string(what) + ": more than " + std::to_string(max_json_bytes) + " bytes");
  }
  if (depth_of(text) > max_json_depth) {
    return fail(errc::invalid_argument, std::string(what) + ": nested deeper than " +
                                            std::to_string(max_json_depth) + " levels");
  }
  try {
    return nlohmann::json::parse(text);
  } catch (const nlohmann::json::parse_error& e) {
    return fail(errc::invalid_argument,
                std::string(what) + ": not valid JSON at byte " + std::to_string(e.byte));
  } catch (const nlohmann::json::exception& e) {  // e.g. a number out of range
    return fail(errc::invalid_argument,
                std::string(what) + ": not valid JSON (" + std::to_string(e.id) + ")");
  }
}

}  // namespace dsec::fs

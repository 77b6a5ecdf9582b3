#include "fs/bounded_json.hpp"

#include <string>

#include "base/json_shape.hpp"

namespace dsec::fs {
namespace {

using base::errc;
using base::fail;

}  // namespace

base::result<nlohmann::json> parse_bounded_json(std::string_view text, std::string_view what) {
  if (text.size() > max_json_bytes) {
    return fail(errc::too_large,
                std::string(what) + ": more than " + std::to_string(max_json_bytes) + " bytes");
  }
  const auto shape = base::shape_of_json(text);
  if (shape.depth > max_json_depth) {
    return fail(errc::invalid_argument, std::string(what) + ": nested deeper than " +
                                            std::to_string(max_json_depth) + " levels");
  }
  if (shape.values > max_json_values) {
    return fail(errc::too_large,
                std::string(what) + ": more than " + std::to_string(max_json_values) + " values");
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

base::result<nlohmann::json> parse_json_object(std::string_view text, std::string_view what) {
  DSEC_TRY(auto document, parse_bounded_json(text, what));
  if (!document.is_object())
    return base::fail(base::errc::invalid_argument, std::string(what) + ": must be a JSON object");
  return document;
}

}  // namespace dsec::fs

// JSON from outside: parsed with limits on size, nesting and values, every failure an error that
// names `what` (a file, a request member). Any thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "base/result.hpp"

namespace dsec::fs {

inline constexpr std::size_t max_json_bytes = 1U << 20U;
inline constexpr std::size_t max_json_depth = 32;
inline constexpr std::size_t max_json_values = 50'000;  // each takes some ten times its text

base::result<nlohmann::json> parse_bounded_json(std::string_view text, std::string_view what);
/// The same for a text that must be an object.
base::result<nlohmann::json> parse_json_object(std::string_view text, std::string_view what);

}  // namespace dsec::fs

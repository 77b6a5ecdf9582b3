// Structured logs: one JSON object per line on stderr, fixed field names (ts, level, event, then
// the caller's). Thread-safe; a line is one write(2). INFO is state changes only; no secrets and no
// tenant data.
#pragma once

#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <utility>
#include <variant>

namespace dsec::base::log {

enum class level { debug, info, warn, error };

using value = std::variant<std::string_view, std::int64_t, double, bool>;

struct field {
  std::string_view name;
  value data;

  field(std::string_view n, std::string_view v) : name(n), data(v) {}
  field(std::string_view n, const char* v) : name(n), data(std::string_view(v)) {}
  template <class I>
    requires(std::is_integral_v<I> && !std::is_same_v<I, bool>)
  field(std::string_view n, I v) : name(n), data(static_cast<std::int64_t>(v)) {}
  field(std::string_view n, double v) : name(n), data(v) {}
  field(std::string_view n, bool v) : name(n), data(v) {}
};

/// Lines below `minimum` are dropped; default info.
void set_level(level minimum);
bool parse_level(std::string_view name, level& out);

void write(level l, std::string_view event, std::initializer_list<field> fields);

inline void debug(std::string_view event, std::initializer_list<field> f = {}) {
  write(level::debug, event, f);
}
inline void info(std::string_view event, std::initializer_list<field> f = {}) {
  write(level::info, event, f);
}
inline void warn(std::string_view event, std::initializer_list<field> f = {}) {
  write(level::warn, event, f);
}
inline void error(std::string_view event, std::initializer_list<field> f = {}) {
  write(level::error, event, f);
}

}  // namespace dsec::base::log

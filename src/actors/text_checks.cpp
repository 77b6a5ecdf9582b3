#include "actors/text_checks.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "proto/limits.hpp"

namespace dsec::actors {
namespace {

using base::errc;
using base::fail;

// execve(2) refuses single strings over 128 KiB (MAX_ARG_STRLEN), the terminator included.
constexpr std::size_t max_variable = 128 * 1024 - 1;

std::string_view name_of(std::string_view variable) {
  return variable.substr(0, variable.find('='));
}

/// Variables in order of first appearance, found by name: a request may carry thousands.
class variables {
 public:
  void set(std::string variable) {
    const auto [known, fresh] = index_.emplace(name_of(variable), list_.size());
    if (fresh) {
      list_.push_back(std::move(variable));
    } else {
      list_[known->second] = std::move(variable);
    }
  }
  std::vector<std::string> take() { return std::move(list_); }

 private:
  std::vector<std::string> list_;
  std::unordered_map<std::string, std::size_t> index_;
};

}  // namespace

base::result<std::string> text(capnp::Text::Reader value, std::string_view field,
                               std::size_t most) {
  std::string out(value.begin(), value.size());
  if (out.size() > most) {
    return fail(errc::invalid_argument,
                std::string(field) + " is longer than " + std::to_string(most) + " bytes");
  }
  if (out.find('\0') != std::string::npos) {
    return fail(errc::invalid_argument, std::string(field) + " holds a NUL byte");
  }
  return out;
}

base::result<std::string> idempotency_key(capnp::Text::Reader value) {
  return text(value, "idempotency key", 256);
}

base::result<std::string> absolute_path(capnp::Text::Reader value, std::string_view field) {
  DSEC_TRY(auto path, text(value, field, 4095));
  if (!path.empty() && path.front() != '/') {
    return fail(errc::invalid_argument,
                std::string(field) + " '" + path + "' is not an absolute path");
  }
  return path;
}

base::result<std::vector<std::string>> environment(capnp::List<proto::EnvVar>::Reader list,
                                                   std::string_view field) {
  if (list.size() > proto::max_env) {
    return fail(errc::invalid_argument, std::string(field) + " has more than " +
                                            std::to_string(proto::max_env) + " variables");
  }
  variables env;
  for (const auto variable : list) {
    DSEC_TRY(const auto name, text(variable.getName(), field));
    if (name.empty() || name.find('=') != std::string::npos) {
      return fail(errc::invalid_argument,
                  std::string(field) + ": '" + name + "' is not a variable name");
    }
    DSEC_TRY(const auto value, text(variable.getValue(), field, max_variable - name.size() - 1));
    std::string variable_text = name;
    variable_text += '=';
    variable_text += value;
    env.set(std::move(variable_text));
  }
  return env.take();
}

std::vector<std::string> overlay(std::vector<std::string> bottom,
                                 const std::vector<std::string>& top) {
  variables env;
  for (auto& variable : bottom) env.set(std::move(variable));
  for (const auto& variable : top) env.set(variable);
  return env.take();
}

}  // namespace dsec::actors

#include "fs/image_config.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>

#include "base/text.hpp"
#include "fs/bounded_json.hpp"
#include "fs/json_place.hpp"

namespace dsec::fs {
namespace {

using base::errc;
using base::fail;
using base::result;
using nlohmann::json;

constexpr std::array<std::string_view, 6> known_keys{"Env",        "WorkingDir", "User",
                                                     "Entrypoint", "Cmd",        "Labels"};
constexpr std::size_t max_path_bytes = 4095;
constexpr std::size_t max_user_bytes = 256;

/// A name from the text itself, safe to print.
std::string quoted(const std::string& name) {
  return json(base::shown(name, 80)).dump(-1, ' ', true, json::error_handler_t::replace);
}

result<std::string> text_of(const json& value, const json_place& at,
                            std::size_t limit = max_config_string) {
  if (!value.is_string()) return at.fail("must be a string");
  const auto& text = value.get_ref<const std::string&>();
  if (text.size() > limit)
    return at.fail("is longer than " + std::to_string(limit) + " bytes", errc::too_large);
  if (text.find('\0') != std::string::npos) return at.fail("contains a NUL character");
  return text;
}

/// An absent key, null and [] all mean "nothing": Docker writes any of them.
result<std::vector<std::string>> texts_of(const json& value, const json_place& at) {
  std::vector<std::string> out;
  if (value.is_null()) return out;
  if (!value.is_array()) return at.fail("must be a list of strings");
  if (value.size() > max_config_entries) {
    return at.fail("has more than " + std::to_string(max_config_entries) + " entries",
                   errc::too_large);
  }
  for (std::size_t i = 0; i < value.size(); ++i) {
    DSEC_TRY(auto text, text_of(value[i], at.index(i)));
    out.push_back(std::move(text));
  }
  return out;
}

/// "" means "nothing" too.
result<std::optional<std::string>> scalar_of(const json& value, const json_place& at,
                                             std::size_t limit) {
  if (value.is_null()) return std::nullopt;
  DSEC_TRY(auto text, text_of(value, at, limit));
  if (text.empty()) return std::nullopt;
  return std::optional(std::move(text));
}

void set_variable(image_config& config, std::string_view name, std::string value) {
  const auto found =
      std::ranges::find(config.env, name, &std::pair<std::string, std::string>::first);
  if (found != config.env.end()) {
    found->second = std::move(value);
  } else {
    config.env.emplace_back(name, std::move(value));
  }
}

const std::string* variable(const image_config& config, std::string_view name) {
  const auto found =
      std::ranges::find(config.env, name, &std::pair<std::string, std::string>::first);
  return found == config.env.end() ? nullptr : &found->second;
}

result<void> read_env(image_config& config, const json& value, const json_place& at) {
  DSEC_TRY(const auto entries, texts_of(value, at));
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const auto equals = entries[i].find('=');
    if (equals == std::string::npos || equals == 0) return at.index(i).fail("must be NAME=VALUE");
    set_variable(config, entries[i].substr(0, equals), entries[i].substr(equals + 1));
  }
  return {};
}

result<void> read_labels(image_config& config, const json& value, const json_place& at) {
  if (value.is_null()) return {};
  if (!value.is_object()) return at.fail("must be an object of strings");
  if (value.size() > max_config_entries) {
    return at.fail("has more than " + std::to_string(max_config_entries) + " entries",
                   errc::too_large);
  }
  for (const auto& [name, label] : value.items()) {
    if (name.empty() || name.size() > max_path_bytes)
      return at.fail("has a name that is empty or too long");
    DSEC_TRY(config.labels[name], text_of(label, at.member(quoted(name))));
  }
  return {};
}

result<void> read_scalars(image_config& config, const json& object, const json_place& at) {
  const auto member = [&](const char* key) { return object.value(key, json()); };
  DSEC_TRY(config.cwd, scalar_of(member("WorkingDir"), at.key("WorkingDir"), max_path_bytes));
  if (config.cwd && !config.cwd->starts_with('/'))
    return at.key("WorkingDir").fail("must be an absolute path");
  DSEC_TRY(config.user, scalar_of(member("User"), at.key("User"), max_user_bytes));
  if (config.user &&
      (std::ranges::any_of(*config.user, [](unsigned char c) { return std::iscntrl(c) != 0; }) ||
       std::ranges::count(*config.user, ':') > 1)) {
    return at.key("User").fail("must be USER or USER:GROUP");
  }
  return {};
}

/// Go's JSON matches keys in any case, so "env" works in Docker and would be lost here without a
/// word.
result<void> refuse_wrong_case(const json& object, const json_place& at) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) ==
           std::tolower(static_cast<unsigned char>(b));
  };
  for (const auto& [key, ignored] : object.items()) {
    for (const auto known : known_keys) {
      if (key != known && std::ranges::equal(key, known, same)) {
        return at.key(key).fail("is written '" + std::string(known) + "'");
      }
    }
  }
  return {};
}

/// Appends to `config` whatever `upper` has; PATH is the caller's.
void overlay(image_config& config, const image_config& upper) {
  for (const auto& [name, value] : upper.env) {
    if (name != "PATH") set_variable(config, name, value);
  }
  if (upper.cwd) config.cwd = upper.cwd;
  if (upper.user) config.user = upper.user;
  if (!upper.entrypoint.empty()) config.entrypoint = upper.entrypoint;
  if (!upper.entrypoint.empty() || !upper.cmd.empty()) config.cmd = upper.cmd;
  for (const auto& [name, value] : upper.labels) config.labels[name] = value;
}

std::vector<std::string_view> split_path(std::string_view path) {
  std::vector<std::string_view> out;
  for (std::size_t begin = 0; begin <= path.size();) {
    const auto end = std::min(path.find(':', begin), path.size());
    out.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

/// `path` with the entries of `front` before it. Empty entries of a toolkit (the working directory,
/// by execvp's rules) are dropped.
std::string prepend_path(std::string_view front, std::string_view path) {
  const auto present = split_path(path);
  std::string out;
  std::vector<std::string_view> added;
  for (const auto entry : split_path(front)) {
    if (entry.empty() || std::ranges::count(present, entry) + std::ranges::count(added, entry) > 0)
      continue;
    added.push_back(entry);
    out += std::string(entry) + ":";
  }
  return out + std::string(path);
}

constexpr std::string_view usual_path =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

}  // namespace

result<image_config> parse_image_config(std::string_view text, std::string_view what) {
  DSEC_TRY(const auto document, parse_json_object(text, what));
  if (document.contains("schemaVersion")) {
    return fail(errc::invalid_argument,
                std::string(what) +
                    ": this is a manifest; the image configuration is the blob that it names");
  }
  const auto inner = document.find("config");
  const bool whole = inner != document.end();
  const json_place at(what, whole ? "config" : "");
  image_config config;
  if (whole && inner->is_null()) return config;
  if (whole && !inner->is_object()) return json_place(what).key("config").fail("must be an object");
  const json& object = whole ? *inner : document;
  DSEC_CHECK(refuse_wrong_case(object, at));
  DSEC_CHECK(read_env(config, object.value("Env", json()), at.key("Env")));
  DSEC_CHECK(read_scalars(config, object, at));
  DSEC_TRY(config.entrypoint, texts_of(object.value("Entrypoint", json()), at.key("Entrypoint")));
  DSEC_TRY(config.cmd, texts_of(object.value("Cmd", json()), at.key("Cmd")));
  DSEC_CHECK(read_labels(config, object.value("Labels", json()), at.key("Labels")));
  return config;
}

std::string to_json(const image_config& config) {
  json object = json::object();
  for (const auto& [name, value] : config.env) object["Env"].push_back(name + "=" + value);
  if (config.cwd) object["WorkingDir"] = *config.cwd;
  if (config.user) object["User"] = *config.user;
  if (!config.entrypoint.empty()) object["Entrypoint"] = config.entrypoint;
  if (!config.cmd.empty()) object["Cmd"] = config.cmd;
  if (!config.labels.empty()) object["Labels"] = config.labels;
  // Text that is not UTF-8 can only come from a programming error; it must not throw here.
  return json{{"config", object}}.dump(-1, ' ', false, json::error_handler_t::replace);
}

image_config merge(const image_config& base, const image_config* workspace,
                   std::span<const image_config> toolkits) {
  image_config merged = base;
  if (workspace != nullptr) overlay(merged, *workspace);
  for (const auto& toolkit : toolkits) overlay(merged, toolkit);

  std::string path(usual_path);
  if (const auto* p = variable(base, "PATH")) path = *p;
  if (workspace != nullptr) {
    if (const auto* p = variable(*workspace, "PATH")) path = *p;
  }
  for (const auto& toolkit : toolkits) {
    if (const auto* p = variable(toolkit, "PATH")) path = prepend_path(*p, path);
  }
  set_variable(merged, "PATH", std::move(path));
  return merged;
}

}  // namespace dsec::fs

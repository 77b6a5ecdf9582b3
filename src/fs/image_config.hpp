// What an image says about the commands that run in it, in the terms of the OCI image configuration
// (opencontainers/image-spec, config.md): Env, WorkingDir, User, Entrypoint, Cmd, Labels. Pure; any
// thread. The text is untrusted (it comes with images): sizes and counts are bounded, unknown keys
// are ignored as OCI says.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"

namespace dsec::fs {

struct image_config {
  std::vector<std::pair<std::string, std::string>> env;  // in order; PATH is one of them
  std::optional<std::string> cwd;                        // absolute
  std::optional<std::string> user;                       // NAME, UID, NAME:GROUP, UID:GID
  std::vector<std::string> entrypoint;                   // of commands that ask for it
  std::vector<std::string> cmd;  // follows it where a command has no arguments of its own
  std::map<std::string, std::string> labels;

  bool operator==(const image_config&) const = default;
};

inline constexpr std::size_t max_config_entries = 1024;  // of Env, Entrypoint, Cmd, Labels each
inline constexpr std::size_t max_config_string = 128U << 10U;  // execve(2)'s MAX_ARG_STRLEN

/// Parses OCI form: either a whole image configuration ({"config": {...}}) or its "config" object
/// alone. `what` names the text in errors (a file), which also name the key.
base::result<image_config> parse_image_config(std::string_view json,
                                              std::string_view what = "image configuration");
/// A whole image configuration; parse_image_config(to_json(c)) == c.
std::string to_json(const image_config& config);

/// Merges layers, bottom first: scalars come from the topmost layer that has them, variables and
/// labels likewise; PATH is the base's and workspace's topmost one with each toolkit's PATH entries
/// put before it, the last toolkit's first. An entry that is already in the PATH below stays where
/// it is, so that a toolkit carrying a whole PATH of its own does not put /usr/bin before what the
/// base put first. Without any PATH the usual one is set. A layer's Entrypoint takes Cmd with it,
/// as in a Dockerfile: what one layer wants started gets no arguments meant for another's.
image_config merge(const image_config& base, const image_config* workspace,
                   std::span<const image_config> toolkits);

}  // namespace dsec::fs

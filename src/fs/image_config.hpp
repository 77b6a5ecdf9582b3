// What an image says about the commands that run in it, in the terms of the OCI image configuration
// (opencontainers/image-spec, config.md): Env, WorkingDir, User, Entrypoint, Labels. Pure; any thread.
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
  std::optional<std::string> cwd;
  std::optional<std::string> user;
  std::vector<std::string> entrypoint;
  std::map<std::string, std::string> labels;

  bool operator==(const image_config&) const = default;
};

/// Parses OCI form: either a whole image configuration ({"config": {...}}) or its "config" object alone.
base::result<image_config> parse_image_config(std::string_view json);
std::string to_json(const image_config& config);

/// Merges layers, bottom first: scalars come from the topmost layer that has them, variables likewise; PATH is
/// the base's and workspace's topmost one with each toolkit's PATH entries put before it, the last toolkit's
/// first. Without any PATH the usual one is set.
image_config merge(const image_config& base, const image_config* workspace, std::span<const image_config> toolkits);

}  // namespace dsec::fs

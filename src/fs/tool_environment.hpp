// The environment of the programs that fetch and build images: the same wherever dsecd is started
// from. Any thread.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace dsec::fs {

inline constexpr std::string_view tool_path =
    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Proxies are the only part of our own that they see.
std::vector<std::string> tool_environment(const std::filesystem::path& temporary);

/// NAME=VALUE of our own environment, for names that are set.
void pass_on(std::vector<std::string>& environment, const char* name);

}  // namespace dsec::fs

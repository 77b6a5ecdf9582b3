#include "fs/tool_environment.hpp"

#include <cstdlib>

namespace dsec::fs {

std::vector<std::string> tool_environment(const std::filesystem::path& temporary) {
  std::vector<std::string> env{"PATH=" + std::string(tool_path), "LC_ALL=C.UTF-8", "HOME=/root",
                               "TMPDIR=" + temporary.string()};
  for (const char* name : {"http_proxy", "https_proxy", "ftp_proxy", "no_proxy"})
    pass_on(env, name);
  return env;
}

void pass_on(std::vector<std::string>& environment, const char* name) {
  if (const char* value = std::getenv(name); value != nullptr)
    environment.push_back(std::string(name) + "=" + value);
}

}  // namespace dsec::fs

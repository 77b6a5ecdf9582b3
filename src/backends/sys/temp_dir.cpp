#include "backends/sys/temp_dir.hpp"

#include <stdlib.h>

#include "backends/sys/file.hpp"
#include "base/log.hpp"

namespace dsec::sys {

base::result<temp_dir> temp_dir::make(const std::string& prefix) {
  std::error_code ignored;
  auto parent = std::filesystem::temp_directory_path(ignored);
  if (ignored) parent = "/tmp";
  std::string name = parent / (prefix + "-XXXXXX");
  if (::mkdtemp(name.data()) == nullptr) return base::fail_errno("cannot make '" + name + "'");
  return temp_dir(name);
}

temp_dir::~temp_dir() {
  if (path_.empty()) return;
  const auto parent = open_directory(path_.parent_path());
  if (!parent) return;
  if (const auto removed = remove_tree_at(parent->get(), path_.filename()); !removed)
    base::log::warn("temp_dir_left",
                    {{"path", path_.native()}, {"error", removed.error().to_string()}});
}

}  // namespace dsec::sys

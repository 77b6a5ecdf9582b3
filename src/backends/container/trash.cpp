#include "backends/container/trash.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstdio>

#include "backends/sys/file.hpp"
#include "base/ids.hpp"
#include "base/log.hpp"

namespace dsec::container {

using base::result;

result<std::unique_ptr<trash>> trash::open(const std::filesystem::path& directory) {
  DSEC_CHECK(sys::make_directory_at(AT_FDCWD, directory, 0700));
  DSEC_TRY(auto fd, sys::open_directory(directory));
  DSEC_TRY(const auto left, sys::list_directory(fd.get()));
  std::unique_ptr<trash> made(new trash(std::move(fd), directory));
  for (const auto& name : left) made->thread_.post([t = made.get(), name] { t->remove(name); });
  return made;
}

result<void> trash::discard(const std::filesystem::path& path) {
  const auto name = path.filename().string() + "." + base::random_token(40);
  if (::renameat(AT_FDCWD, path.c_str(), directory_.get(), name.c_str()) != 0) {
    if (errno == ENOENT) return {};
    return base::fail_errno("cannot move '" + path.string() + "' to the trash");
  }
  thread_.post([this, name] { remove(name); });
  return {};
}

void trash::empty() {
  thread_.drain();
}

void trash::remove(const std::string& name) {
  if (const auto removed = sys::remove_tree_at(directory_.get(), name); !removed)
    base::log::warn("trash_left",
                    {{"path", (path_ / name).native()}, {"error", removed.error().to_string()}});
}

}  // namespace dsec::container

#include "backends/container/trash.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string>
#include <vector>

#include "backends/sys/file.hpp"
#include "base/ids.hpp"
#include "base/log.hpp"

namespace dsec::container {

using base::result;

namespace {

/// Deletes all that is there, again until that succeeds: of a directory that was deleted in part
/// the rest stands beside it, under other names (remove_tree_at).
void sweep_later(housekeeper& thread, int directory, std::chrono::milliseconds wait,
                 std::chrono::milliseconds longest) {
  thread.post_later(wait, [=, &thread] {
    const auto names = sys::list_directory(directory);
    bool left = !names;
    for (const auto& name : names.value_or(std::vector<std::string>())) {
      const auto removed = sys::remove_tree_at(directory, name);
      left = left || (!removed && removed.error().code != base::errc::not_found);
    }
    if (left) sweep_later(thread, directory, std::min(2 * wait, longest), longest);
  });
}

}  // namespace

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

void trash::remove(const std::string& name, std::chrono::milliseconds wait) {
  const auto removed = sys::remove_tree_at(directory_.get(), name);
  if (removed || removed.error().code == base::errc::not_found) return;
  base::log::warn("trash_left",
                  {{"path", (path_ / name).native()}, {"error", removed.error().to_string()}});
  sweep_later(thread_, directory_.get(), wait, longest_retry);
}

}  // namespace dsec::container

#include "backends/container/trash.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <string>
#include <utility>

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
  const auto removed = try_to_remove(name);
  if (removed) return;
  base::log::warn("trash_left",
                  {{"path", (path_ / name).native()}, {"error", removed.error().to_string()}});
  sweep_later();
}

result<void> trash::try_to_remove(const std::string& name) const {
  auto removed = sys::remove_tree_at(directory_.get(), name);
  if (!removed && removed.error().code == base::errc::not_found) return {};
  return removed;
}

void trash::sweep_later() {
  if (std::exchange(sweep_due_, true)) return;
  thread_.post_later(wait_, [this] { sweep(); });
  wait_ = std::min(2 * wait_, longest_retry);
}

/// Deletes all that is there: of a directory that was deleted in part the rest stands beside it,
/// under other names (remove_tree_at). A job for each, so that the thread can be ended in between.
void trash::sweep() {
  sweep_due_ = false;
  const auto names = sys::list_directory(directory_.get());
  if (!names) return sweep_later();
  for (const auto& name : *names) {
    thread_.post([this, name] {
      if (!try_to_remove(name)) sweep_later();
    });
  }
  thread_.post([this] {
    if (!sweep_due_) wait_ = first_retry;
  });
}

}  // namespace dsec::container

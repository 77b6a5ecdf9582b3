#include "fs/staging.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "base/ids.hpp"
#include "base/log.hpp"
#include "fs/files.hpp"

namespace dsec::fs {
namespace {

using base::fail_errno;
using base::result;
using base::unique_fd;

constexpr int lock_seconds = 120;

std::filesystem::path tmp(const base::paths& paths) {
  return paths.images() / "tmp";
}

/// The store's own lock: neither a directory that is not locked yet nor a manifest being written
/// may be swept.
result<unique_fd> lock_store(const base::paths& paths) {
  return lock_file(paths.images() / "locks" / "store", lock_seconds);
}

bool in_use(const std::filesystem::path& entry) {
  const unique_fd fd(::open(entry.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd)
    return errno != ENOTDIR && errno != ELOOP;  // files are only there under the store's lock
  return ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0;
}

}  // namespace

result<staging> staging::make(const base::paths& paths) {
  DSEC_TRY(const auto lock, lock_store(paths));
  auto directory = tmp(paths) / base::random_token(80);
  if (::mkdir(directory.c_str(), 0700) != 0)
    return fail_errno("make directory " + directory.string());
  unique_fd fd(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd || ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    auto error = fail_errno("lock " + directory.string());
    ::rmdir(directory.c_str());
    return error;
  }
  return staging(std::move(directory), std::move(fd));
}

staging::staging(staging&& other) noexcept
    : directory_(std::exchange(other.directory_, {})), lock_(std::move(other.lock_)) {}

staging::~staging() {
  if (directory_.empty()) return;
  if (const auto removed = remove_tree(directory_); !removed) {
    base::log::warn("staging left",
                    {{"directory", directory_.string()}, {"why", removed.error().message}});
  }
}

result<int> staging::sweep(const base::paths& paths) {
  DSEC_TRY(const auto lock, lock_store(paths));
  std::vector<std::filesystem::path> dead;
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(tmp(paths), error);
       !error && it != std::filesystem::end(it); it.increment(error)) {
    if (!in_use(it->path())) dead.push_back(it->path());
  }
  if (error)
    return base::fail(base::from_errno("read directory " + tmp(paths).string(), error.value()));
  int removed = 0;
  for (const auto& entry : dead) {
    DSEC_CHECK(remove_tree(entry));
    ++removed;
  }
  return removed;
}

}  // namespace dsec::fs

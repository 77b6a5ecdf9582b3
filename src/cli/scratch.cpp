#include "cli/scratch.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "backends/sys/file.hpp"

namespace dsec::cli {
namespace {

using base::errc;
using base::fail;
using base::fail_errno;

/// The last directory on the way that exists.
std::filesystem::path nearest(std::filesystem::path p) {
  std::error_code bad;
  while (!std::filesystem::is_directory(p, bad) && p != p.root_path()) p = p.parent_path();
  return p;
}

/// It may have been there before, in a directory that everybody may write to: whoever made it
/// would say where to what is written and mounted in it.
base::result<void> check_own(int directory, const std::filesystem::path& path) {
  struct stat st {};
  if (::fstat(directory, &st) != 0) return fail_errno("cannot look at '" + path.string() + "'");
  if (st.st_uid == ::geteuid() && (st.st_mode & (S_IWGRP | S_IWOTH)) == 0) return {};
  return fail(errc::permission_denied,
              "'" + path.string() +
                  "' is in the way and belongs to somebody else, or others may write to it; remove "
                  "it, or choose another --state");
}

}  // namespace

base::result<scratch> scratch::make(const std::filesystem::path& state, const std::string& instance,
                                    const std::string& what) {
  const auto parent = nearest(state);
  auto name = parent == state ? what : "." + what + "-" + instance;
  DSEC_TRY(auto directory, sys::open_directory(parent));
  DSEC_CHECK(sys::make_directory_at(directory.get(), name, 0700));
  DSEC_TRY(auto lock, sys::open_at(directory.get(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  DSEC_CHECK(check_own(lock.get(), parent / name));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return fail_errno("cannot lock '" + (parent / name).string() + "'");
    return fail(errc::already_exists,
                "another dsecd " + what + " is at work in '" + (parent / name).string() + "'");
  }
  return scratch(parent, std::move(name), std::move(directory), std::move(lock));
}

base::result<void> scratch::clear() const {
  DSEC_TRY(const auto left, sys::list_directory(lock_.get()));
  for (const auto& each : left) {
    if (::unlinkat(lock_.get(), each.c_str(), 0) == 0) continue;
    DSEC_CHECK(sys::remove_tree_at(lock_.get(), each));
  }
  return {};
}

scratch::~scratch() {
  if (parent_fd_) static_cast<void>(sys::remove_tree_at(parent_fd_.get(), name_));
}

}  // namespace dsec::cli

#include "fs/unpack/tree_writer.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include "fs/printable.hpp"
#include "fs/unpack/remove_at.hpp"

namespace dsec::fs::unpack {
namespace {

using base::errc;
using base::fail;
using base::fail_errno;
using base::result;
using base::unique_fd;

constexpr mode_t implied_mode = 0755;
constexpr timespec beginning{0, 0};
constexpr int directory_flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;

/// openat2(2): while anybody on the host renames or mounts, the kernel may not be sure that ".." in
/// a link stays inside, and says EAGAIN.
unique_fd open_in_root(int root, const std::string& path) {
  constexpr int most_tries = 10'000;
  open_how how{};
  how.flags = directory_flags;
  how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
  const char* name = path.empty() ? "." : path.c_str();
  for (int i = 0;; ++i) {
    unique_fd fd(static_cast<int>(::syscall(SYS_openat2, root, name, &how, sizeof how)));
    if (fd || errno != EAGAIN || i == most_tries) return fd;
  }
}

std::array<timespec, 2> times(timespec mtime) {
  return {timespec{0, UTIME_OMIT}, mtime};
}

result<struct stat> status_of(int fd) {
  struct stat st {};
  if (::fstat(fd, &st) != 0) return fail_errno("stat");
  return st;
}

std::string key(ino_t directory, const std::string& name) {
  std::string out(sizeof directory, '\0');
  std::memcpy(out.data(), &directory, sizeof directory);
  return out + name;
}

/// What an earlier layer gave a directory that this one describes anew.
result<void> drop_attributes(int fd) {
  std::vector<char> names(64U << 10U);
  const auto length = ::flistxattr(fd, names.data(), names.size());
  if (length < 0) return errno == ENOTSUP ? result<void>() : fail_errno("list attributes");
  for (const char* name = names.data(); name < names.data() + length;
       name += std::strlen(name) + 1) {
    if (allowed_attribute(name) && ::fremovexattr(fd, name) != 0 && errno != ENODATA)
      return fail_errno("remove attribute");
  }
  return {};
}

}  // namespace

bool allowed_attribute(std::string_view name) {
  return name.starts_with("user.") || name == "security.capability" ||
         name == "system.posix_acl_access" || name == "system.posix_acl_default";
}

result<tree_writer> tree_writer::open(unique_fd root) {
  tree_writer tree(std::move(root));
  DSEC_TRY(const auto st, status_of(tree.root_.get()));
  tree.root_inode_ = st.st_ino;
  tree.directories_[st.st_ino] = {st.st_ino, 0, 0, 0};
  DSEC_CHECK(tree.root({implied_mode, 0, 0, beginning, {}}));
  return tree;
}

void tree_writer::next_layer() {
  ++layer_;
  touched_.clear();
}

std::string tree_writer::show(const std::string& name) const {
  return printable(here_.path.empty() ? name : here_.path + "/" + name, max_path_bytes);
}

result<void> tree_writer::leave() {
  const auto left = std::exchange(here_, {});
  if (!left.fd) return {};
  if (::futimens(left.fd.get(), times(left.mtime).data()) != 0)
    return fail_errno("set the time of " + printable(left.path));
  return {};
}

result<bool> tree_writer::open_place(std::string_view directory) {
  place next;
  next.path = directory;
  next.fd = open_in_root(root_.get(), next.path);
  if (!next.fd && errno == ENOENT) return false;
  if (!next.fd && (errno == ENOTDIR || errno == ELOOP)) {
    return fail(errc::invalid_argument, "'" + printable(next.path, max_path_bytes) +
                                            "' is not a directory, and an entry is in it");
  }
  if (!next.fd) return fail_errno("open " + printable(next.path));
  DSEC_TRY(const auto st, status_of(next.fd.get()));
  next.inode = st.st_ino;
  next.mtime = st.st_mtim;
  here_ = std::move(next);
  return true;
}

result<bool> tree_writer::enter(std::string_view directory, bool make) {
  if (here_.fd && here_.sure && here_.path == directory) return true;
  DSEC_CHECK(leave());
  DSEC_TRY(const auto there, open_place(directory));
  if (there || !make) return there;
  DSEC_CHECK(make_missing(directory));
  return open_place(directory);
}

result<void> tree_writer::make_missing(std::string_view path) {
  for (std::size_t end = 0; end != std::string_view::npos;) {
    const auto begin = end == 0 ? 0 : end + 1;
    end = path.find('/', begin);
    const auto so_far = path.substr(0, end);
    DSEC_TRY(const auto there, open_place(so_far));
    if (there) {
      DSEC_CHECK(leave());
      continue;
    }
    DSEC_TRY(const auto above, open_place(begin == 0 ? "" : path.substr(0, begin - 1)));
    const std::string name(so_far.substr(begin));
    struct stat st {};
    if (!above || ::fstatat(here_.fd.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0) {
      return fail(errc::invalid_argument, "'" + printable(so_far, max_path_bytes) +
                                              "' is a symbolic link that leads nowhere, and an "
                                              "entry is in it");
    }
    DSEC_CHECK(this->directory(name, {implied_mode, 0, 0, beginning, {}}));
    DSEC_CHECK(leave());
  }
  return {};
}

result<void> tree_writer::check_length(const std::string& name) const {
  const auto& above = directories_.at(here_.inode);
  if (name.size() > NAME_MAX) {
    return fail(errc::invalid_argument, "'" + show(name) + "' has a name of more than " +
                                            std::to_string(NAME_MAX) + " bytes");
  }
  if (above.bytes + 1 + name.size() > max_path_bytes || above.depth >= max_path_depth) {
    return fail(errc::too_large, "'" + show(name) + "' is longer than " +
                                     std::to_string(max_path_bytes) + " bytes or deeper than " +
                                     std::to_string(max_path_depth) + " directories");
  }
  return {};
}

/// A directory that has just been made, or was there.
result<void> tree_writer::made_directory(const std::string& name, int fd) {
  DSEC_TRY(const auto st, status_of(fd));
  const auto above = directories_.at(here_.inode);
  directories_[st.st_ino] = {here_.inode, above.bytes + 1 + name.size(), above.depth + 1, 0};
  touch_directory(st.st_ino);
  return {};
}

void tree_writer::touch_directory(ino_t inode) {
  for (;;) {
    auto& d = directories_.at(inode);
    if (std::exchange(d.touched, layer_) == layer_ || inode == d.parent) return;
    inode = d.parent;
  }
}

void tree_writer::touch(const std::string& name) {
  touched_.insert(key(here_.inode, name));
  touch_directory(here_.inode);
}

bool tree_writer::touched(ino_t directory, const std::string& name) const {
  return touched_.contains(key(directory, name));
}

/// Owner before mode, since chown(2) clears set-user-id bits, and both before capabilities, which
/// it clears too; the time last.
result<void> tree_writer::apply(int fd, const std::string& name, const metadata& m) {
  if (::fchown(fd, m.uid, m.gid) != 0) return fail_errno("set the owner of " + show(name));
  if (::fchmod(fd, m.mode) != 0) return fail_errno("set the mode of " + show(name));
  for (const auto& [attribute, value] : m.attributes) {
    if (::fsetxattr(fd, attribute.c_str(), value.data(), value.size(), 0) != 0)
      return fail_errno("set " + printable(attribute) + " of " + show(name));
  }
  if (::futimens(fd, times(m.mtime).data()) != 0)
    return fail_errno("set the time of " + show(name));
  return {};
}

/// What goes may be a link that the way here went through.
result<void> tree_writer::remove(int directory, const std::string& name) {
  here_.sure = false;
  return remove_at(directory, name);
}

result<void> tree_writer::make_room(int directory, const std::string& name, bool keep_directory) {
  struct stat st {};
  if (::fstatat(directory, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
    return errno == ENOENT ? result<void>() : fail_errno("stat " + show(name));
  if (S_ISDIR(st.st_mode) && keep_directory) return {};
  return remove(directory, name);
}

result<void> tree_writer::directory(const std::string& name, const metadata& m) {
  DSEC_CHECK(check_length(name));
  DSEC_CHECK(make_room(here_.fd.get(), name, true));
  if (::mkdirat(here_.fd.get(), name.c_str(), 0700) != 0 && errno != EEXIST)
    return fail_errno("make directory " + show(name));
  const unique_fd fd(::openat(here_.fd.get(), name.c_str(), directory_flags | O_NOFOLLOW));
  if (!fd) return fail_errno("open " + show(name));
  DSEC_CHECK(made_directory(name, fd.get()));
  DSEC_CHECK(drop_attributes(fd.get()));
  return apply(fd.get(), name, m);
}

result<void> tree_writer::root(const metadata& m) {
  DSEC_CHECK(leave());
  DSEC_CHECK(drop_attributes(root_.get()));
  return apply(root_.get(), "/", m);
}

result<void> tree_writer::symlink(const std::string& name, const std::string& target,
                                  const metadata& m) {
  DSEC_CHECK(check_length(name));
  const int at = here_.fd.get();
  DSEC_CHECK(make_room(at, name, false));
  if (::symlinkat(target.c_str(), at, name.c_str()) != 0)
    return fail_errno("make symbolic link " + show(name));
  touch(name);
  if (::fchownat(at, name.c_str(), m.uid, m.gid, AT_SYMLINK_NOFOLLOW) != 0)
    return fail_errno("set the owner of " + show(name));
  if (::utimensat(at, name.c_str(), times(m.mtime).data(), AT_SYMLINK_NOFOLLOW) != 0)
    return fail_errno("set the time of " + show(name));
  return {};
}

result<void> tree_writer::fifo(const std::string& name, const metadata& m) {
  DSEC_CHECK(check_length(name));
  const int at = here_.fd.get();
  DSEC_CHECK(make_room(at, name, false));
  if (::mkfifoat(at, name.c_str(), 0600) != 0) return fail_errno("make fifo " + show(name));
  touch(name);
  // By name: opening a fifo does something. It was made here a moment ago, and nobody else is here.
  if (::fchownat(at, name.c_str(), m.uid, m.gid, AT_SYMLINK_NOFOLLOW) != 0 ||
      ::fchmodat(at, name.c_str(), m.mode, 0) != 0)
    return fail_errno("set the owner and mode of " + show(name));
  if (::utimensat(at, name.c_str(), times(m.mtime).data(), AT_SYMLINK_NOFOLLOW) != 0)
    return fail_errno("set the time of " + show(name));
  return {};
}

result<unique_fd> tree_writer::begin_file(const std::string& name) {
  constexpr int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  DSEC_CHECK(check_length(name));
  unique_fd fd(::openat(here_.fd.get(), name.c_str(), flags, 0600));
  if (!fd && errno == EEXIST) {
    // Never written into: another name of it may belong to a lower layer.
    DSEC_CHECK(remove(here_.fd.get(), name));
    fd.reset(::openat(here_.fd.get(), name.c_str(), flags, 0600));
  }
  if (!fd) return fail_errno("make file " + show(name));
  touch(name);
  return fd;
}

result<void> tree_writer::finish_file(const unique_fd& file, const std::string& name,
                                      std::uint64_t size, const metadata& m) {
  if (::ftruncate(file.get(), static_cast<off_t>(size)) != 0)
    return fail_errno("set the size of " + show(name));
  return apply(file.get(), name, m);
}

result<bool> tree_writer::hard_link(const std::string& name, std::string_view target_directory,
                                    const std::string& target_name) {
  DSEC_CHECK(check_length(name));
  const std::string above(target_directory);
  const auto from = open_in_root(root_.get(), above);
  if (!from && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP)) return false;
  if (!from) return fail_errno("open " + printable(above));
  struct stat target {};
  if (::fstatat(from.get(), target_name.c_str(), &target, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return false;
    return fail_errno("stat " + printable(above + "/" + target_name));
  }
  if (S_ISDIR(target.st_mode)) {
    return fail(errc::invalid_argument, "'" + show(name) + "' is a hard link to a directory");
  }
  DSEC_TRY(const auto st, status_of(from.get()));
  touch(name);
  if (st.st_ino == here_.inode && name == target_name) return true;
  DSEC_CHECK(make_room(here_.fd.get(), name, false));
  // Taking the place of a directory may have taken the target with it.
  if (::linkat(from.get(), target_name.c_str(), here_.fd.get(), name.c_str(), 0) != 0) {
    if (errno == ENOENT) return false;
    return fail_errno("link " + show(name));
  }
  return true;
}

result<void> tree_writer::nothing(const std::string& name) {
  return make_room(here_.fd.get(), name, false);
}

result<void> tree_writer::whiteout(const std::string& name) {
  DSEC_CHECK(prune(here_.fd.get(), here_.inode, name));
  return {};
}

result<void> tree_writer::opaque() {
  return prune_all(here_.fd.get(), here_.inode);
}

/// True when nothing is left of it.
result<bool> tree_writer::prune(int directory, ino_t inode, const std::string& name) {
  struct stat st {};
  if (::fstatat(directory, name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    if (errno == ENOENT) return true;
    return fail_errno("stat " + printable(name));
  }
  if (!S_ISDIR(st.st_mode)) {
    if (touched(inode, name)) return false;
    DSEC_CHECK(remove(directory, name));
    return true;
  }
  if (directories_.at(st.st_ino).touched != layer_) {
    DSEC_CHECK(remove(directory, name));
    return true;
  }
  const unique_fd fd(::openat(directory, name.c_str(), directory_flags | O_NOFOLLOW));
  if (!fd) return fail_errno("open " + printable(name));
  DSEC_CHECK(prune_all(fd.get(), st.st_ino));
  if (::futimens(fd.get(), times(st.st_mtim).data()) != 0)
    return fail_errno("set the time of " + printable(name));
  return false;
}

result<void> tree_writer::prune_all(int directory, ino_t inode) {
  DSEC_TRY(const auto names, names_in(directory));
  for (const auto& name : names) DSEC_CHECK(prune(directory, inode, name));
  return {};
}

}  // namespace dsec::fs::unpack

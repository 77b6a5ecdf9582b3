#include "fs/tree_scan.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <memory>
#include <set>
#include <utility>

#include "base/sha256.hpp"
#include "base/unique_fd.hpp"
#include "fs/files.hpp"
#include "fs/printable.hpp"

namespace dsec::fs {
namespace {

using base::errc;
using base::fail;
using base::fail_errno;
using base::result;
using base::unique_fd;

constexpr std::uint64_t inode_bytes = 64;  // an extended EROFS inode

std::string_view own_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

struct close_directory {
  void operator()(DIR* d) const { ::closedir(d); }
};

class scanner {
 public:
  explicit scanner(std::filesystem::path root) : root_(std::move(root)) {}

  result<tree_summary> run() {
    root_fd_.reset(::open(root_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!root_fd_) return fail_errno("open directory " + root_.string());
    struct stat st {};
    if (::fstat(root_fd_.get(), &st) != 0) return fail_errno("stat " + root_.string());
    device_ = st.st_dev;
    DSEC_CHECK(account("", st));
    for (pending_.emplace_back("."); !pending_.empty();) {
      const auto directory = std::move(pending_.back());
      pending_.pop_back();
      DSEC_CHECK(scan_directory(directory));
    }
    summary_.fingerprint = digest_.finish();
    return std::move(summary_);
  }

 private:
  [[nodiscard]] std::string full(const std::string& relative) const {
    return printable((root_ / relative).native(), PATH_MAX);
  }

  result<void> scan_directory(const std::string& relative) {
    // Paths, not nested descriptors: a deep tree must not use up the process's open files. BENEATH
    // and NO_SYMLINKS keep the walk inside even when the tree changes under it.
    open_how how{};
    how.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
    const auto fd = ::syscall(SYS_openat2, root_fd_.get(), relative.c_str(), &how, sizeof how);
    if (fd < 0) return fail_errno("open directory " + full(relative));
    const std::unique_ptr<DIR, close_directory> stream(::fdopendir(static_cast<int>(fd)));
    if (!stream) {
      ::close(static_cast<int>(fd));
      return fail_errno("open directory " + full(relative));
    }
    DSEC_TRY(const auto names, read_names(stream.get(), relative));
    for (const auto& name : names) {
      struct stat st {};
      if (::fstatat(static_cast<int>(fd), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
        return fail_errno("stat " + full(relative + "/" + name));
      }
      const auto path = relative == "." ? name : relative + "/" + name;
      DSEC_CHECK(account(path, st));
      if (S_ISDIR(st.st_mode)) pending_.push_back(path);
    }
    return {};
  }

  /// Sorted, so that the fingerprint and the first error do not depend on the directory's hash
  /// order.
  result<std::vector<std::string>> read_names(DIR* stream, const std::string& relative) const {
    std::vector<std::string> names;
    for (;;) {
      errno = 0;
      const dirent* entry = ::readdir(stream);
      if (entry == nullptr) break;
      const std::string_view name = entry->d_name;
      if (name != "." && name != "..") names.emplace_back(name);
      if (names.size() > max_tree_entries) return too_many();
    }
    if (errno != 0) return fail_errno("read directory " + full(relative));
    std::ranges::sort(names);
    return names;
  }

  [[nodiscard]] tl::unexpected<base::error> too_many() const {
    return fail(errc::too_large,
                root_.string() + ": more than " + std::to_string(max_tree_entries) + " files");
  }

  result<void> account(const std::string& path, const struct stat& st) {
    if (++summary_.entries > max_tree_entries) return too_many();
    if (root_.native().size() + 1 + path.size() >= PATH_MAX) {
      return fail(errc::invalid_argument, "path too long: " + printable(full(path)));
    }
    add_to_fingerprint(path, st);
    if (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode) || S_ISSOCK(st.st_mode))
      return exclude(path, st);
    if (st.st_uid > max_layer_id || st.st_gid > max_layer_id) {
      return fail(errc::invalid_argument,
                  full(path) + " belongs to " + std::to_string(st.st_uid) + ":" +
                      std::to_string(st.st_gid) +
                      "; a sandbox has ids 0 to 65535: change the owner and import again");
    }
    // Only directories: on an overlay, files may report the device of a layer.
    if (S_ISDIR(st.st_mode) && st.st_dev != device_) {
      return fail(errc::invalid_argument,
                  full(path) + " is another file system; unmount it or import a copy of the tree");
    }
    const auto name_bytes = own_name(path).size();
    if (name_bytes > own_name(summary_.longest_name).size()) summary_.longest_name = path;
    summary_.image_bytes += inode_bytes + name_bytes;
    if (S_ISREG(st.st_mode) && (st.st_nlink == 1 || linked_.emplace(st.st_dev, st.st_ino).second)) {
      summary_.image_bytes += static_cast<std::uint64_t>(st.st_size);
    }
    return {};
  }

  result<void> exclude(const std::string& path, const struct stat& st) {
    ++(S_ISSOCK(st.st_mode) ? summary_.sockets : summary_.devices);
    excluded_bytes_ += path.size() + 1;
    if (excluded_bytes_ > max_excluded_bytes) {
      return fail(errc::too_large,
                  root_.string() + " has too many device nodes and sockets; remove them first");
    }
    summary_.excluded.push_back(path);
    return {};
  }

  void add_to_fingerprint(const std::string& path, const struct stat& st) {
    // Every change of content or attributes moves ctime, which nobody can set back; ino tells a
    // renamed-over file.
    std::string line = path;
    line += '\0';
    for (const auto number :
         {static_cast<std::int64_t>(st.st_mode), static_cast<std::int64_t>(st.st_uid),
          static_cast<std::int64_t>(st.st_gid), static_cast<std::int64_t>(st.st_size),
          static_cast<std::int64_t>(st.st_ino), static_cast<std::int64_t>(st.st_nlink),
          static_cast<std::int64_t>(st.st_mtim.tv_sec),
          static_cast<std::int64_t>(st.st_mtim.tv_nsec),
          static_cast<std::int64_t>(st.st_ctim.tv_sec),
          static_cast<std::int64_t>(st.st_ctim.tv_nsec)}) {
      line += std::to_string(number);
      line += ' ';
    }
    digest_.update(line);
  }

  std::filesystem::path root_;
  unique_fd root_fd_;
  dev_t device_ = 0;
  std::vector<std::string> pending_;
  std::set<std::pair<dev_t, ino_t>> linked_;
  std::size_t excluded_bytes_ = 0;
  base::sha256 digest_;
  tree_summary summary_;
};

}  // namespace

result<tree_summary> scan_tree(const std::filesystem::path& root) {
  return scanner(root).run();
}

}  // namespace dsec::fs

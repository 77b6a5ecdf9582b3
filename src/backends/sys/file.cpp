#include "backends/sys/file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <memory>

#include "base/ids.hpp"

namespace dsec::sys {
namespace {

using base::fail_errno;
using base::result;

struct close_dir {
  void operator()(DIR* d) const { ::closedir(d); }
};
using unique_dir = std::unique_ptr<DIR, close_dir>;

/// A stream of its own over the directory, so that the caller's offset and descriptor stay
/// untouched.
result<unique_dir> open_stream(int directory) {
  const int fd = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return fail_errno("cannot open a directory for listing");
  unique_dir stream(::fdopendir(fd));
  if (!stream) {
    const auto error = fail_errno("cannot list a directory");
    ::close(fd);
    return error;
  }
  return stream;
}

bool is_dot(const char* name) {
  return name[0] == '.' && (name[1] == '\0' || (name[1] == '.' && name[2] == '\0'));
}

/// Names in the shared parent under which subdirectories wait for their turn.
std::string waiting_name() {
  static const auto run = base::random_token(40);
  static std::atomic<unsigned long> counter{0};
  return std::string(removal_prefix) + run + "-" + std::to_string(counter++);
}

/// Moves `directory`/`name` up to `parent`, under a name that no other process has taken: one that
/// was forked from this one, and killed, may have left some of ours.
result<std::string> move_up(int directory, const char* name, int parent) {
  while (true) {
    auto moved = waiting_name();
    if (::renameat(directory, name, parent, moved.c_str()) == 0) return moved;
    if (errno != ENOTEMPTY && errno != EEXIST)
      return fail_errno(std::string("cannot move directory '") + name + "' up");
  }
}

/// Unlinks everything in `parent`/`name` but non-empty subdirectories, which move to `parent` and
/// are named in `waiting`; then removes the directory itself.
result<void> remove_one(int parent, const std::string& name, std::vector<std::string>& waiting) {
  DSEC_TRY(const auto dir, open_at(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
  DSEC_TRY(const auto stream, open_stream(dir.get()));
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) {
      if (errno != 0) return fail_errno("cannot list '" + name + "'");
      break;
    }
    if (is_dot(entry->d_name)) continue;
    if (::unlinkat(dir.get(), entry->d_name, 0) == 0 || errno == ENOENT) continue;
    if (errno != EISDIR && errno != EPERM) return fail_errno("cannot remove '" + name + "/…'");
    if (::unlinkat(dir.get(), entry->d_name, AT_REMOVEDIR) == 0) continue;
    if (errno != ENOTEMPTY && errno != EEXIST) return fail_errno("cannot remove '" + name + "/…'");
    DSEC_TRY(auto moved, move_up(dir.get(), entry->d_name, parent));
    waiting.push_back(std::move(moved));
  }
  if (::unlinkat(parent, name.c_str(), AT_REMOVEDIR) != 0)
    return fail_errno("cannot remove directory '" + name + "'");
  return {};
}

}  // namespace

result<unique_fd> open_at(int directory, const std::string& name, int flags, mode_t mode) {
  unique_fd fd(::openat(directory, name.c_str(), flags | O_CLOEXEC, mode));
  if (!fd) return fail_errno("cannot open '" + name + "'");
  return fd;
}

result<unique_fd> open_directory(const std::filesystem::path& path) {
  return open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
}

result<std::string> read_all(int fd, std::string_view name) {
  std::string text;
  char buffer[4096];
  while (true) {
    const auto n = ::read(fd, buffer, sizeof buffer);
    if (n == 0) return text;
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("cannot read '" + std::string(name) + "'");
    text.append(buffer, static_cast<std::size_t>(n));
  }
}

result<std::string> read_file_at(int directory, const std::string& name) {
  DSEC_TRY(const auto fd, open_at(directory, name, O_RDONLY));
  return read_all(fd.get(), name);
}

result<std::string> read_file(const std::filesystem::path& path) {
  return read_file_at(AT_FDCWD, path);
}

result<void> write_file_at(int directory, const std::string& name, std::string_view text) {
  DSEC_TRY(const auto fd, open_at(directory, name, O_WRONLY));
  const auto n = ::write(fd.get(), text.data(), text.size());
  if (n < 0) return fail_errno("cannot write '" + std::string(text) + "' to '" + name + "'");
  if (static_cast<std::size_t>(n) != text.size())
    return base::fail(base::errc::io, "short write to '" + name + "'");
  return {};
}

result<void> make_directory_at(int directory, const std::string& name, mode_t mode) {
  if (::mkdirat(directory, name.c_str(), mode) != 0 && errno != EEXIST)
    return fail_errno("cannot make directory '" + name + "'");
  return {};
}

result<std::vector<std::string>> list_directory(int directory) {
  DSEC_TRY(const auto stream, open_stream(directory));
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(stream.get())) {
    if (!is_dot(entry->d_name)) names.emplace_back(entry->d_name);
  }
  if (errno != 0) return fail_errno("cannot list a directory");
  return names;
}

result<void> remove_tree_at(int directory, const std::string& name) {
  std::vector<std::string> waiting{name};
  while (!waiting.empty()) {
    const auto next = std::move(waiting.back());
    waiting.pop_back();
    DSEC_CHECK(remove_one(directory, next, waiting));
  }
  return {};
}

result<unique_fd> sealed_memfd(const char* name, std::span<const std::byte> bytes, mode_t mode) {
  unique_fd fd(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return fail_errno(std::string("cannot make memory file '") + name + "'");
  for (std::size_t done = 0; done < bytes.size();) {
    const auto n = ::write(fd.get(), bytes.data() + done, bytes.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return fail_errno(std::string("cannot fill memory file '") + name + "'");
    done += static_cast<std::size_t>(n);
  }
  constexpr int seals = F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE;
  if (::fchmod(fd.get(), mode) != 0 || ::fcntl(fd.get(), F_ADD_SEALS, seals) != 0)
    return fail_errno(std::string("cannot seal memory file '") + name + "'");
  // Opened again for reading: a descriptor that could write, sealed or not, makes execve(2) say
  // ETXTBSY.
  return open_at(AT_FDCWD, "/proc/self/fd/" + std::to_string(fd.get()), O_RDONLY);
}

}  // namespace dsec::sys

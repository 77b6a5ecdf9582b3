#include "fs/files.hpp"

#include <fcntl.h>
#include <ftw.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <thread>
#include <vector>

#include "base/sha256.hpp"
#include "base/write_all.hpp"

namespace dsec::fs {
namespace {

using base::errc;
using base::fail;
using base::fail_errno;
using base::result;
using base::unique_fd;

constexpr std::size_t copy_bytes = 256U << 10U;

result<unique_fd> open_for_reading(const std::filesystem::path& file) {
  unique_fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd) return fail_errno("open " + file.string());
  return fd;
}

// nftw(3) hands its callback no context.
thread_local int first_remove_error = 0;

int remove_entry(const char* path, const struct stat*, int type, FTW*) {
  const bool directory = type == FTW_DP || type == FTW_DNR;
  if ((directory ? ::rmdir(path) : ::unlink(path)) != 0 && errno != ENOENT &&
      first_remove_error == 0) {
    first_remove_error = errno;
  }
  return 0;
}

}  // namespace

result<std::string> sha256_of_file(const std::filesystem::path& file) {
  DSEC_TRY(const auto fd, open_for_reading(file));
  ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  base::sha256 digest;
  std::vector<char> buffer(copy_bytes);
  for (;;) {
    const auto n = ::read(fd.get(), buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("read " + file.string());
    if (n == 0) return digest.finish();
    digest.update({buffer.data(), static_cast<std::size_t>(n)});
  }
}

bool is_digest(std::string_view text) {
  return text.size() == 64 && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

result<std::string> read_all(int fd, std::size_t limit, const std::filesystem::path& name) {
  std::string bytes;
  std::array<char, 16384> buffer{};
  for (;;) {
    const auto n = ::read(fd, buffer.data(), buffer.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("read " + name.string());
    if (n == 0) return bytes;
    bytes.append(buffer.data(), static_cast<std::size_t>(n));
    if (bytes.size() > limit) {
      return fail(errc::too_large,
                  name.string() + ": more than " + std::to_string(limit) + " bytes");
    }
  }
}

result<std::string> read_file(const std::filesystem::path& file, std::size_t limit) {
  unique_fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd) return fail_errno("open " + file.string());
  struct stat st {};
  if (::fstat(fd.get(), &st) != 0) return fail_errno("stat " + file.string());
  if (!S_ISREG(st.st_mode))
    return fail(errc::invalid_argument, file.string() + " is not a regular file");
  return read_all(fd.get(), limit, file);
}

result<void> make_private_directories(const std::filesystem::path& directory) {
  if (::mkdir(directory.c_str(), 0700) == 0 || errno == EEXIST) return {};
  if (errno != ENOENT || !directory.has_relative_path())
    return fail_errno("make directory " + directory.string());
  DSEC_CHECK(make_private_directories(directory.parent_path()));
  if (::mkdir(directory.c_str(), 0700) == 0 || errno == EEXIST) return {};
  return fail_errno("make directory " + directory.string());
}

result<void> sync_path(const std::filesystem::path& path) {
  DSEC_TRY(const auto fd, open_for_reading(path));
  if (::fsync(fd.get()) != 0) return fail_errno("fsync " + path.string());
  return {};
}

result<void> write_file_power(const std::filesystem::path& target,
                              const std::filesystem::path& scratch, std::string_view bytes) {
  {
    unique_fd fd(
        ::open(scratch.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return fail_errno("make " + scratch.string());
    DSEC_CHECK(base::write_all(fd.get(), bytes, scratch.native()));
    if (::fsync(fd.get()) != 0) return fail_errno("fsync " + scratch.string());
  }
  if (::rename(scratch.c_str(), target.c_str()) != 0)
    return fail_errno("rename to " + target.string());
  return sync_path(target.parent_path());
}

result<void> move_file_power(const std::filesystem::path& from, const std::filesystem::path& target,
                             mode_t mode) {
  if (::chmod(from.c_str(), mode) != 0) return fail_errno("chmod " + from.string());
  DSEC_CHECK(sync_path(from));
  if (::rename(from.c_str(), target.c_str()) != 0)
    return fail_errno("rename to " + target.string());
  return sync_path(target.parent_path());
}

result<void> remove_tree(const std::filesystem::path& root) {
  constexpr int open_directories = 32;
  first_remove_error = 0;
  if (::nftw(root.c_str(), remove_entry, open_directories, FTW_DEPTH | FTW_PHYS | FTW_MOUNT) != 0 &&
      errno != ENOENT) {
    return fail_errno("remove " + root.string());
  }
  if (first_remove_error != 0)
    return fail(base::from_errno("remove " + root.string(), first_remove_error));
  return {};
}

result<unique_fd> lock_file(const std::filesystem::path& file, int wait_seconds, bool* waited) {
  unique_fd fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) return fail_errno("open " + file.string());
  // flock(2) has no timeout, and a signal would be needed to end it: try and sleep instead.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(wait_seconds);
  while (::flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) return fail_errno("lock " + file.string());
    if (waited != nullptr) *waited = true;
    if (std::chrono::steady_clock::now() >= deadline) {
      return fail(errc::deadline_exceeded, "lock " + file.string() +
                                               ": held by another process for " +
                                               std::to_string(wait_seconds) + " s");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return fd;
}

}  // namespace dsec::fs

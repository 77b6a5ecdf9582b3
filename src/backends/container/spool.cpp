#include "backends/container/spool.hpp"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "backends/sys/file.hpp"
#include "guest/spool.hpp"

namespace dsec::container {
namespace {

using backends::output_piece;
using backends::stream;
using base::fail;
using base::fail_errno;
using base::result;

/// One answer carries at most this much, whatever was asked for.
constexpr std::uint64_t max_piece = 4U << 20U;

/// Ends like no command's file does.
std::string ready_name(unsigned i) {
  return std::to_string(i) + ".ready";
}

constexpr std::size_t suffix_length = 4;

std::string file_name(const std::string& command, stream which) {
  return command + (which == stream::out ? ".out" : ".err");
}

/// The command that a file of that name belongs to.
std::optional<std::string> command_of(const std::string& name) {
  if (!name.ends_with(".out") && !name.ends_with(".err")) return std::nullopt;
  return name.substr(0, name.size() - suffix_length);
}

result<std::uint64_t> file_size(int fd) {
  struct stat info {};
  if (::fstat(fd, &info) != 0) return fail_errno("cannot stat a spool file");
  return static_cast<std::uint64_t>(info.st_size);
}

/// Reads up to `length` bytes; fewer at the end of the file.
result<void> append_range(int fd, std::uint64_t at, std::uint64_t length, std::string& out) {
  const auto start = out.size();
  out.resize(start + length);
  std::uint64_t done = 0;
  while (done < length) {
    const auto n =
        ::pread(fd, out.data() + start + done, length - done, static_cast<off_t>(at + done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return fail_errno("cannot read a spool file");
    if (n == 0) break;
    done += static_cast<std::uint64_t>(n);
  }
  out.resize(start + done);
  return {};
}

}  // namespace

std::uint64_t valid_spool_cap(std::uint64_t wanted) {
  return (std::clamp<std::uint64_t>(wanted, 4096, 1ULL << 40U) + 1) & ~1ULL;
}

result<void> spool_dir::prepare(unsigned files) const {
  const auto first = next_ready_.load(std::memory_order_relaxed);
  for (unsigned i = 0; i < files; ++i) {
    const auto name = path_ / ready_name((first + i) % ready_in_use);
    if (::access(name.c_str(), F_OK) == 0) continue;
    // Without a name first: the directory, which create() needs, is locked only for the link.
    DSEC_TRY(const auto file, sys::open_at(AT_FDCWD, path_, O_WRONLY | O_TMPFILE, 0600));
    const auto self = "/proc/self/fd/" + std::to_string(file.get());
    if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0 &&
        errno != EEXIST)
      return fail_errno("cannot make a spool file ready");
  }
  return {};
}

/// Renames a ready file to `target`; false when none is left.
bool spool_dir::take_ready(const std::filesystem::path& target) const {
  const auto first = next_ready_.load(std::memory_order_relaxed);
  for (unsigned tried = 0; tried < ready_in_use; ++tried) {
    const auto i = (first + tried) % ready_in_use;
    const auto ready = path_ / ready_name(i);
    if (::renameat2(AT_FDCWD, ready.c_str(), AT_FDCWD, target.c_str(), RENAME_NOREPLACE) == 0) {
      next_ready_.store((i + 1) % ready_in_use, std::memory_order_relaxed);
      return true;
    }
    if (errno != ENOENT) return false;
  }
  return false;
}

result<sys::unique_fd> spool_dir::create_one(const std::string& name) const {
  const auto path = path_ / name;
  // What already exists is refused by both ways.
  const int create = take_ready(path) ? 0 : O_CREAT | O_EXCL;
  return sys::open_at(AT_FDCWD, path, O_WRONLY | O_NOFOLLOW | create, 0600);
}

result<std::pair<sys::unique_fd, sys::unique_fd>> spool_dir::create(
    const std::string& command) const {
  DSEC_TRY(auto out, create_one(file_name(command, stream::out)));
  auto err = create_one(file_name(command, stream::err));
  if (!err) {
    ::unlink((path_ / file_name(command, stream::out)).c_str());
    return fail(err.error());
  }
  return std::pair{std::move(out), std::move(*err)};
}

result<output_piece> spool_dir::read(const std::string& command, stream which, std::uint64_t cap,
                                     std::uint64_t offset, std::uint64_t length,
                                     std::optional<std::uint64_t> total) const {
  const guest::spool_layout layout{cap};
  DSEC_TRY(const auto file,
           sys::open_at(AT_FDCWD, path_ / file_name(command, which), O_RDONLY | O_NOFOLLOW));
  output_piece piece;
  piece.offset = offset;
  DSEC_TRY(const auto size, file_size(file.get()));
  // Of a running command only the first half stands still; behind it the ring turns.
  auto end = std::min(size, layout.half());
  auto dropped_to = layout.dropped_from();
  if (total && size < std::min(*total, cap)) {
    end = size;  // the disk took no more: what there is stands in order
  } else if (total) {
    end = *total;
    dropped_to = layout.dropped_to(end);
  }
  if (offset >= layout.dropped_from() && offset < dropped_to) piece.offset = dropped_to;
  auto position = piece.offset;
  auto left = position < end ? std::min({length, end - position, max_piece}) : 0;
  while (left > 0) {
    const bool in_head = position < layout.half();
    if (in_head && dropped_to > layout.half() && position + left > layout.half())
      left = layout.half() - position;  // what follows the head was dropped: the next call jumps
    const auto step = std::min(left, layout.contiguous(position));
    const auto before = piece.data.size();
    DSEC_CHECK(append_range(file.get(), layout.file_offset(position), step, piece.data));
    if (piece.data.size() - before < step) break;  // of an older aether: less than announced
    position += step;
    left -= step;
  }
  return piece;
}

std::filesystem::path spool_dir::file(const std::string& command, stream which) const {
  return path_ / file_name(command, which);
}

void spool_dir::forget(const std::string& command) const {
  for (const auto which : {stream::out, stream::err})
    ::unlink((path_ / file_name(command, which)).c_str());
}

result<void> spool_dir::retain(const std::function<bool(const std::string&)>& known) const {
  DSEC_TRY(const auto directory, sys::open_directory(path_));
  DSEC_TRY(const auto names, sys::list_directory(directory.get()));
  for (const auto& name : names) {
    const auto command = command_of(name);
    if (command && !known(*command)) ::unlinkat(directory.get(), name.c_str(), 0);
  }
  return {};
}

}  // namespace dsec::container

#include "actors/file_outcome.hpp"

#include <cerrno>
#include <cstring>

#include "actors/output.hpp"

namespace dsec::actors {

using base::errc;
using base::fail;

std::string attempt(backends::exec_kind kind, const std::string& path) {
  const bool reads = kind == backends::exec_kind::read_file;
  return std::string(reads ? "cannot read '" : "cannot write '") + path + "'";
}

base::error about_exit(backends::exec_kind kind, const std::string& path,
                       const backends::command_exited& e) {
  if (e.timed_out) return {errc::deadline_exceeded, attempt(kind, path) + " in time", 0};
  if (e.signal != 0) return {errc::cancelled, attempt(kind, path) + ": interrupted", 0};
  // The helper's exit status is the errno of the call that failed. It is the sandbox that has a
  // mount for reading alone; the host's disk is another matter.
  if (e.exit_code == EROFS)
    return {errc::permission_denied, attempt(kind, path) + ": read-only file system", EROFS};
  return base::from_errno(attempt(kind, path), e.exit_code);
}

base::error disk_took_less(std::uint64_t kept, std::uint64_t total) {
  return {errc::io,
          "the disk with the state directory took " + std::to_string(kept) + " of " +
              std::to_string(total) + " bytes on their way out of the sandbox; make room there",
          0};
}

base::result<std::uint64_t> size_after(backends::instance& instance,
                                       const backends::command_exited& e) {
  DSEC_TRY(const auto bytes, read_stream(instance, e.id, backends::stream::err, e.stderr_total, 8));
  std::uint64_t size = 0;
  if (bytes.size() == sizeof size) {
    std::memcpy(&size, bytes.data(), sizeof size);
    return size;
  }
  if (e.stderr_total == sizeof size) return fail(disk_took_less(bytes.size(), e.stderr_total));
  return fail(errc::internal, "a file helper did not report the file's size");
}

base::result<std::uint64_t> outcome_of_write(backends::instance& instance, const std::string& path,
                                             const backends::command_exited& e) {
  if (e.exit_code != 0) return fail(about_exit(backends::exec_kind::write_file, path, e));
  auto size = size_after(instance, e);
  if (size) return size;
  // Of no code that says "send it again": it is done, and must not be done again.
  return fail(errc::internal,
              "'" + path + "' was written, but its size is not known: " + size.error().message);
}

}  // namespace dsec::actors

// read_file and write_file (file_commands.hpp).
#include "guest/aether/file_commands.hpp"

#include <linux/openat2.h>

#include "guest/aether/syscall.hpp"
#include "guest/aether/text.hpp"

namespace dsec::guest::aether {
namespace {

constexpr size_t path_max = 4096;
constexpr size_t chunk = 32768;

/// No magic links: /proc/PID/fd and the like would reach what path permissions do not give.
long open_path(const char* path, uint64_t flags, uint64_t mode) {
  struct open_how how = {};
  how.flags = flags | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
  how.mode = mode;
  how.resolve = RESOLVE_NO_MAGICLINKS;
  return sys::call(__NR_openat2, AT_FDCWD, path, &how, sizeof how);
}

/// Ends the child unless `fd` is an open regular file; else the command counts as started from here
/// on.
void started_with(const child_plan& plan, long fd) {
  if (fd < 0) child_fails(plan, failure::exec, fd);
  struct stat about = {};
  if (const long r = sys::fstat(static_cast<int>(fd), &about); r < 0) {
    child_fails(plan, failure::exec, r);
  }
  const auto type = about.st_mode & S_IFMT;
  if (type == S_IFDIR) child_fails(plan, failure::exec, -EISDIR);
  if (type != S_IFREG) child_fails(plan, failure::exec, -EINVAL);
  sys::close(plan.fds[start_status]);
}

/// After `started` an error can be told by the exit code only.
[[noreturn]] void fail(long negative_errno) {
  sys::exit(static_cast<int>(-negative_errno));
}

[[noreturn]] void end_with_size(int fd) {
  struct stat about = {};
  if (const long r = sys::fstat(fd, &about); r < 0) fail(r);
  sys::write(2, &about.st_size, sizeof(int64_t));
  sys::exit(0);
}

void write_all(int fd, const char* from, size_t n) {
  while (n > 0) {
    const long done = sys::write(fd, from, n);
    if (done < 0) fail(done);
    from += done;
    n -= static_cast<size_t>(done);
  }
}

/// mkdir -p of everything before the last component.
long make_parents(const char* path) {
  char dir[path_max];
  const size_t n = length_of(path);
  if (n >= sizeof dir) return -ENAMETOOLONG;
  for (size_t i = 0; i < n; ++i) {
    if (path[i] == '/' && i > 0) {
      dir[i] = '\0';
      const long r = sys::call(__NR_mkdirat, AT_FDCWD, static_cast<const char*>(dir), 0755);
      if (r < 0 && r != -EEXIST) return r;
    }
    dir[i] = path[i];
  }
  return 0;
}

}  // namespace

void read_file(const child_plan& plan) {
  const long fd = open_path(plan.strings.argv[0], O_RDONLY, 0);
  started_with(plan, fd);
  char buffer[chunk];
  uint64_t at = plan.request.offset;
  const uint64_t stop = at + plan.request.length;
  while (at < stop) {
    const size_t want = stop - at < sizeof buffer ? static_cast<size_t>(stop - at) : sizeof buffer;
    const long n = sys::pread(static_cast<int>(fd), buffer, want, at);
    if (n < 0) fail(n);
    if (n == 0) break;
    write_all(1, buffer, static_cast<size_t>(n));
    at += static_cast<uint64_t>(n);
  }
  end_with_size(static_cast<int>(fd));
}

void write_file(const child_plan& plan) {
  const char* path = plan.strings.argv[0];
  const uint64_t flags = O_WRONLY | O_CREAT | (plan.request.offset == 0 ? O_TRUNC : 0);
  sys::call(__NR_umask, 0);  // the mode that was asked for is the mode it gets
  long fd = open_path(path, flags, plan.request.mode);
  if (fd == -ENOENT) {
    if (const long r = make_parents(path); r < 0) child_fails(plan, failure::exec, r);
    fd = open_path(path, flags, plan.request.mode);
  }
  started_with(plan, fd);
  const auto offset = static_cast<int64_t>(plan.request.offset);
  if (const long r = sys::call(__NR_lseek, fd, offset, 0); r < 0) fail(r);
  char buffer[chunk];
  for (;;) {
    const long n = sys::read(0, buffer, sizeof buffer);
    if (n < 0) fail(n);
    if (n == 0) break;
    write_all(static_cast<int>(fd), buffer, static_cast<size_t>(n));
  }
  end_with_size(static_cast<int>(fd));
}

}  // namespace dsec::guest::aether

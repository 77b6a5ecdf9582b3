#include "backends/sys/cgroup_dir.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <thread>

#include "backends/sys/file.hpp"

namespace dsec::sys {
namespace {

using base::fail;
using base::fail_errno;
using base::result;

/// A group whose last task is exiting answers EBUSY for some hundred microseconds.
constexpr auto busy_retry = std::chrono::microseconds(500);
constexpr auto kill_again = std::chrono::milliseconds(500);

result<std::uint64_t> number(std::string_view text, const std::string& name) {
  std::uint64_t value = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc{})
    return fail(base::errc::internal, "'" + name + "' does not hold a number");
  return value;
}

/// Group trees of ours are three levels deep, so recursion is bounded.
result<void> remove_group(int parent, const std::string& name, deadline until) {
  if (::unlinkat(parent, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return {};
  auto dir = open_at(parent, name, O_RDONLY | O_DIRECTORY);
  if (!dir) {
    if (dir.error().sys_errno == ENOENT) return {};
    return fail(dir.error());
  }
  DSEC_TRY(const auto entries, list_directory(dir->get()));
  for (const auto& entry : entries) {
    struct stat info {};
    if (::fstatat(dir->get(), entry.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
        S_ISDIR(info.st_mode))
      DSEC_CHECK(remove_group(dir->get(), entry, until));
  }
  while (::unlinkat(parent, name.c_str(), AT_REMOVEDIR) != 0) {
    if (errno == ENOENT) return {};
    if (errno != EBUSY) return fail_errno("cannot remove group '" + name + "'");
    if (remaining_ms(until) == 0)
      return fail({base::errc::deadline_exceeded,
                   "cannot remove group '" + name + "', something in it does not die", EBUSY});
    std::this_thread::sleep_for(busy_retry);
  }
  return {};
}

}  // namespace

result<cgroup_dir> cgroup_dir::open(const std::filesystem::path& path) {
  DSEC_TRY(auto fd, open_directory(path));
  return cgroup_dir(std::move(fd), path);
}

result<cgroup_dir> cgroup_dir::make_child(const std::string& name) const {
  DSEC_CHECK(make_directory_at(fd_.get(), name, 0755));
  return open_child(name);
}

result<cgroup_dir> cgroup_dir::open_child(const std::string& name) const {
  DSEC_TRY(auto fd, open_at(fd_.get(), name, O_RDONLY | O_DIRECTORY));
  return cgroup_dir(std::move(fd), path_ / name);
}

result<void> cgroup_dir::write(const std::string& file, std::string_view value) const {
  auto written = write_file_at(fd_.get(), file, value);
  if (!written) written.error().message += " in group " + path_.string();
  return written;
}

result<std::string> cgroup_dir::read(const std::string& file) const {
  return read_file_at(fd_.get(), file);
}

result<std::uint64_t> cgroup_dir::read_number(const std::string& file) const {
  DSEC_TRY(const auto text, read(file));
  return number(text, file);
}

bool cgroup_dir::has(const std::string& file) const {
  return ::faccessat(fd_.get(), file.c_str(), F_OK, 0) == 0;
}

result<void> cgroup_dir::kill() const {
  return write("cgroup.kill", "1");
}

result<void> cgroup_dir::end(deadline until) const {
  while (true) {
    DSEC_CHECK(kill());
    auto empty = wait_empty(std::min(until, after(kill_again)));
    if (empty || empty.error().code != base::errc::deadline_exceeded || remaining_ms(until) == 0)
      return empty;
  }
}

result<void> cgroup_dir::wait_empty(deadline until) const {
  DSEC_TRY(const auto events, open_at(fd_.get(), "cgroup.events", O_RDONLY));
  while (true) {
    // Reading arms the notification: a change after this read raises POLLPRI (cgroup-v2.rst).
    char buffer[256];
    const auto n = ::pread(events.get(), buffer, sizeof buffer, 0);
    if (n < 0) return fail_errno("cannot read cgroup.events of " + path_.string());
    DSEC_TRY(const auto populated,
             flat_keyed(std::string_view(buffer, static_cast<std::size_t>(n)), "populated"));
    if (populated == 0) return {};
    const int left = remaining_ms(until);
    if (left == 0)
      return fail(base::errc::deadline_exceeded,
                  "group " + path_.string() + " does not become empty");
    pollfd p{events.get(), POLLPRI, 0};
    ::poll(&p, 1, left);
  }
}

result<void> cgroup_dir::remove_child(const std::string& name, deadline until) const {
  auto removed = remove_group(fd_.get(), name, until);
  if (!removed) removed.error().message += " below " + path_.string();
  return removed;
}

result<std::uint64_t> flat_keyed(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const auto line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.size() > key.size() && line.substr(0, key.size()) == key && line[key.size()] == ' ')
      return number(line.substr(key.size() + 1), std::string(key));
  }
  return fail(base::errc::not_found, "no line '" + std::string(key) + "'");
}

}  // namespace dsec::sys

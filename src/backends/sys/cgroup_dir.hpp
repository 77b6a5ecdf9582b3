// One control group as its directory's descriptor. libcgroup 2.0 knows neither cgroup.kill nor
// clone-into-group, and its delete call moves living tasks to the root group, so that groups are
// made, killed and removed here. Blocking only in the waits, any thread. Works on versions 1 and 2
// (cgroups(7)); kill and wait_empty need 2.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "backends/sys/pidfd.hpp"
#include "backends/sys/unique_fd.hpp"
#include "base/result.hpp"

namespace dsec::sys {

class cgroup_dir {
 public:
  cgroup_dir() = default;
  static base::result<cgroup_dir> open(const std::filesystem::path& path);
  /// Makes the child group `name` (or opens it when it is there) and opens it.
  [[nodiscard]] base::result<cgroup_dir> make_child(const std::string& name) const;
  [[nodiscard]] base::result<cgroup_dir> open_child(const std::string& name) const;

  explicit operator bool() const { return static_cast<bool>(fd_); }
  [[nodiscard]] int fd() const { return fd_.get(); }
  /// The directory alone, for those who only clone into it.
  [[nodiscard]] unique_fd take_fd() && { return std::move(fd_); }
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  [[nodiscard]] base::result<void> write(const std::string& file, std::string_view value) const;
  [[nodiscard]] base::result<std::string> read(const std::string& file) const;
  [[nodiscard]] base::result<std::uint64_t> read_number(const std::string& file) const;
  [[nodiscard]] bool has(const std::string& file) const;

  /// SIGKILL for every process in the group and below, forks in flight included.
  [[nodiscard]] base::result<void> kill() const;
  /// Kills until no process is left in the group or below: once is not enough, since before Linux
  /// 6.14 a process that is just being cloned into the group escapes. errc::deadline_exceeded.
  [[nodiscard]] base::result<void> end(deadline until) const;
  /// Waits until no process is left in the group or below. errc::deadline_exceeded names how many
  /// are.
  [[nodiscard]] base::result<void> wait_empty(deadline until) const;
  /// Removes the child group `name` and every group below it; retries while the kernel still counts
  /// a dying task (EBUSY) until the deadline. A group that is not there is fine.
  [[nodiscard]] base::result<void> remove_child(const std::string& name, deadline until) const;

 private:
  cgroup_dir(unique_fd fd, std::filesystem::path path)
      : fd_(std::move(fd)), path_(std::move(path)) {}

  unique_fd fd_;
  std::filesystem::path path_;
};

/// The value of `key` in "key value" lines (memory.stat, cgroup.events …).
base::result<std::uint64_t> flat_keyed(std::string_view text, std::string_view key);

}  // namespace dsec::sys

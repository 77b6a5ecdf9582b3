// The launchers of a state directory as processes of this host, found in /proc: by what they are,
// connected or not. Blocking, any thread, as root.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

#include "backends/sys/unique_fd.hpp"
#include "base/result.hpp"

namespace dsec::container {

inline constexpr const char* launcher_program = "dsec-launcher";
/// The first variable of a launcher's environment; with its program what it is known by.
std::string launcher_variable(const std::filesystem::path& state);

struct launcher_seen {
  pid_t pid = 0;
  sys::unique_fd pidfd;

  /// As in proc(5): 'S' sleeping, 'D' in a call that waits, for a disk perhaps, 'T' stopped …; '?'
  /// when it has ended.
  [[nodiscard]] char state() const;
};
base::result<std::vector<launcher_seen>> find_launchers(const std::filesystem::path& state);

/// Kills all launchers that were started for this state directory but the one with pid `but`, and
/// answers how many there were. errc::deadline_exceeded when one does not die.
base::result<std::size_t> kill_launchers(const std::filesystem::path& state, pid_t but);

}  // namespace dsec::container

// What an instance has left on the host, looked for from outside by its name, its state directory
// and its uids: everything that can outlive the code that made it. Works without the instance's
// cooperation; any thread, as root.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace dsec::test {

struct leak_scope {
  std::string instance;
  std::filesystem::path state;
  std::uint32_t uid_base = 0, aether_uid_base = 0;  // 0: ids are not looked at
  std::uint32_t slots = 4096;
  bool spools_allowed = false;  // records may stay: <state>/sandboxes/<id>/spool
};

/// One line per leak, naming it: processes in its groups, with its uids or its launcher; namespaces
/// that belong to its uids, whatever process is in them or holds them by descriptor; mounts of or
/// at the state directory in any mount namespace; control groups of any hierarchy; loop devices on
/// files of the state directory; sockets, uppers, trash and half-made blobs in it.
std::vector<std::string> find_leaks(const leak_scope& scope);

/// The same for an instance that runs and has no sandbox now, but may keep `pool` slots ready: what
/// is there beyond those, its launcher and the layers it has attached.
std::vector<std::string> find_live_leaks(const leak_scope& scope, std::size_t pool);

/// The launcher of the instance.
std::optional<pid_t> find_launcher(const leak_scope& scope);

/// Descriptors of this process by what they are ("socket", "mnt", "/path" …), one line each,
/// sorted: to be compared before and after.
std::vector<std::string> open_descriptors();
/// How many another process has.
std::size_t count_descriptors(pid_t process);

}  // namespace dsec::test

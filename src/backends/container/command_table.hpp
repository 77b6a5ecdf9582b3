// What dsecd remembers of a sandbox's commands while they run and until they are forgotten: enough
// to read their spools and to say in words why one could not start. Thread-safe; owned by its
// instance.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "backends/backend.hpp"
#include "backends/container/aether_frames.hpp"

namespace dsec::container {

struct command_record {
  backends::exec_kind kind = backends::exec_kind::program;
  std::string object;  // program or file
  std::string cwd, user;
  std::uint64_t spool_cap = 0;
};

class command_table {
 public:
  /// errc::already_exists for a known id.
  base::result<void> add(const std::string& id, command_record record);
  [[nodiscard]] std::optional<command_record> find(const std::string& id) const;
  void remove(const std::string& id);

 private:
  mutable std::mutex mutex_;
  std::unordered_map<std::string, command_record> commands_;
};

/// Why the command never started, as an error for its caller. Pure.
base::error describe_failure(const command_record& command, guest::failure why, int sys_errno);

}  // namespace dsec::container

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
  bool logged = true;  // its end is written down
};

class command_table {
 public:
  /// errc::already_exists for a known id.
  base::result<void> add(const std::string& id, command_record record);
  /// The same for one of an earlier dsecd: that has ended, or of which aether is asked now.
  base::result<void> add_ended(const std::string& id, command_record record);
  base::result<void> add_asked(const std::string& id, command_record record);
  [[nodiscard]] std::optional<command_record> find(const std::string& id) const;
  void remove(const std::string& id);

  /// Whether it is known and its start was not told before.
  bool start(const std::string& id);
  /// The command, unless it is unknown or its end was told before.
  std::optional<command_record> end(const std::string& id);
  /// The same when aether does not know it: only one that it was asked of has ended so. One of this
  /// dsecd may be on its way still, behind the kill that was answered.
  std::optional<command_record> end_unknown(const std::string& id);

 private:
  struct entry {
    command_record record;
    bool started = false, ended = false;
    bool asked = false;
  };
  base::result<void> add_entry(const std::string& id, entry e);

  mutable std::mutex mutex_;
  std::unordered_map<std::string, entry> commands_;
};

/// Why the command never started, as an error for its caller. Pure.
base::error describe_failure(const command_record& command, guest::failure why, int sys_errno);

}  // namespace dsec::container

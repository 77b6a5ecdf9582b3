#include "backends/container/command_table.hpp"

#include <cerrno>
#include <cstring>
#include <utility>

namespace dsec::container {
namespace {

using backends::exec_kind;
using base::errc;
using base::error;

std::string reason(int sys_errno) {
  char buffer[128];
  return sys_errno == 0 ? std::string("unknown error")
                        : ::strerror_r(sys_errno, buffer, sizeof buffer);
}

/// File helpers fail like file calls do.
errc file_code(int sys_errno) {
  switch (sys_errno) {
    case ENOENT:
      return errc::not_found;
    case EACCES:
    case EPERM:
    case EROFS:
      return errc::permission_denied;
    case EISDIR:
    case ENOTDIR:
    case EINVAL:
    case ELOOP:
    case ENAMETOOLONG:
    case ENXIO:
      return errc::invalid_argument;
    case EFBIG:
      return errc::too_large;
    default:
      return errc::io;
  }
}

error describe_exec(const command_record& c, int sys_errno) {
  switch (c.kind) {
    case exec_kind::read_file:
      return {file_code(sys_errno), "cannot read '" + c.object + "': " + reason(sys_errno), 0};
    case exec_kind::write_file:
      return {file_code(sys_errno), "cannot write '" + c.object + "': " + reason(sys_errno), 0};
    case exec_kind::shell:
      return {errc::exec_failed, "cannot run the shell: " + reason(sys_errno), 0};
    case exec_kind::program:
      break;
  }
  return {errc::exec_failed, "cannot run '" + c.object + "': " + reason(sys_errno), 0};
}

}  // namespace

base::result<void> command_table::add(const std::string& id, command_record record) {
  return add_entry(id, {std::move(record)});
}

base::result<void> command_table::add_ended(const std::string& id, command_record record) {
  return add_entry(id, {std::move(record), true, true});
}

base::result<void> command_table::add_asked(const std::string& id, command_record record) {
  return add_entry(id, {std::move(record), false, false, true});
}

base::result<void> command_table::add_entry(const std::string& id, entry e) {
  const std::scoped_lock lock(mutex_);
  if (!commands_.emplace(id, std::move(e)).second)
    return base::fail(errc::already_exists, "command '" + id + "' was already started");
  return {};
}

std::optional<command_record> command_table::find(const std::string& id) const {
  const std::scoped_lock lock(mutex_);
  const auto found = commands_.find(id);
  if (found == commands_.end()) return std::nullopt;
  return found->second.record;
}

bool command_table::start(const std::string& id) {
  const std::scoped_lock lock(mutex_);
  const auto found = commands_.find(id);
  return found != commands_.end() && !found->second.ended &&
         !std::exchange(found->second.started, true);
}

std::optional<command_record> command_table::end(const std::string& id) {
  const std::scoped_lock lock(mutex_);
  const auto found = commands_.find(id);
  if (found == commands_.end() || std::exchange(found->second.ended, true)) return std::nullopt;
  return found->second.record;
}

std::optional<command_record> command_table::end_unknown(const std::string& id) {
  {
    const std::scoped_lock lock(mutex_);
    const auto found = commands_.find(id);
    if (found == commands_.end() || !found->second.asked) return std::nullopt;
  }
  return end(id);
}

void command_table::remove(const std::string& id) {
  const std::scoped_lock lock(mutex_);
  commands_.erase(id);
}

error describe_failure(const command_record& c, guest::failure why, int sys_errno) {
  switch (why) {
    case guest::failure::exec:
      return describe_exec(c, sys_errno);
    case guest::failure::no_shell:
      return {errc::no_shell,
              "the image has neither /bin/bash nor /bin/sh; run a program by its argv instead", 0};
    case guest::failure::bad_user:
      return {errc::exec_failed, "user '" + c.user + "' does not exist in the sandbox", 0};
    case guest::failure::bad_cwd:
      return {errc::exec_failed, "cannot enter directory '" + c.cwd + "': " + reason(sys_errno), 0};
    case guest::failure::resources:
      if (sys_errno == EMFILE)
        return {
            errc::capacity,
            "commands: as many run in the sandbox now as this host's limit on open files allows",
            0};
      return {errc::capacity,
              "pids: the sandbox cannot start another process now: " + reason(sys_errno), 0};
    case guest::failure::bad_request:
      return {errc::invalid_argument, "the sandbox refused the command as malformed", 0};
    case guest::failure::spawner:
      return {errc::unavailable, "the sandbox's spawner died before the command started", 0};
  }
  return {errc::internal, "the command did not start for a reason unknown to this version", 0};
}

}  // namespace dsec::container

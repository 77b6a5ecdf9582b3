#include "backends/container/launcher_search.hpp"

#include <signal.h>
#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <optional>
#include <string_view>

#include "backends/sys/file.hpp"
#include "backends/sys/pidfd.hpp"

namespace dsec::container {
namespace {

using base::errc;
using base::fail;
using base::result;

/// From SIGKILL to the end: at once, but for a call that waits for a disk.
constexpr auto death_timeout = std::chrono::seconds(5);

bool is_gone(const base::error& e) {
  return e.sys_errno == ENOENT || e.sys_errno == ESRCH;
}

/// Of a line "Uid: real effective saved fs" in proc(5)'s status. The launcher's effective uid is
/// for a moment that of an aether, whenever it makes a slot.
result<std::optional<uid_t>> real_uid(const std::filesystem::path& process) {
  constexpr std::string_view label = "\nUid:\t";
  const auto status = sys::read_file(process / "status");
  if (!status && !is_gone(status.error())) return fail(status.error());
  const auto line = status ? status->find(label) : std::string::npos;
  if (line == std::string::npos) return std::nullopt;
  uid_t uid = 0;
  const auto* digits = status->data() + line + label.size();
  const auto parsed = std::from_chars(digits, status->data() + status->size(), uid);
  if (parsed.ec != std::errc{}) return std::nullopt;
  return uid;
}

/// Program and environment can be made up by anyone, root inside a sandbox included. Root of the
/// host, and in our process namespace, no sandbox can be.
result<bool> is_ours(const std::filesystem::path& process) {
  DSEC_TRY(const auto uid, real_uid(process));
  struct stat its {
  }, mine{};
  return uid == uid_t{0} && ::stat((process / "ns/pid").c_str(), &its) == 0 &&
         ::stat("/proc/self/ns/pid", &mine) == 0 && its.st_dev == mine.st_dev &&
         its.st_ino == mine.st_ino;
}

/// What keeps us from seeing it, such as a lack of descriptors, is an error: it is not absent.
result<bool> is_launcher_of(const std::string& pid, const std::filesystem::path& state) {
  const auto process = std::filesystem::path("/proc") / pid;
  std::error_code gone;
  const auto program = std::filesystem::read_symlink(process / "exe", gone);
  if (gone || program != std::string("/memfd:") + launcher_program + " (deleted)") return false;
  DSEC_TRY(const bool ours, is_ours(process));
  if (!ours) return false;
  const auto environment = sys::read_file(process / "environ");
  if (!environment && !is_gone(environment.error())) return fail(environment.error());
  return environment && environment->starts_with(launcher_variable(state) + '\0');
}

}  // namespace

std::string launcher_variable(const std::filesystem::path& state) {
  return "DSEC_STATE=" + state.string();
}

char launcher_seen::state() const {
  const auto text = sys::read_file("/proc/" + std::to_string(pid) + "/stat");
  if (!text || sys::wait_ended(pidfd.get(), sys::after(std::chrono::milliseconds(0)))) return '?';
  // The name before it is in parentheses and may hold anything.
  const auto name_end = text->rfind(')');
  return name_end == std::string::npos || name_end + 2 >= text->size() ? '?'
                                                                       : (*text)[name_end + 2];
}

result<std::vector<launcher_seen>> find_launchers(const std::filesystem::path& state) {
  std::vector<launcher_seen> found;
  DSEC_TRY(const auto proc, sys::open_directory("/proc"));
  DSEC_TRY(const auto names, sys::list_directory(proc.get()));
  for (const auto& name : names) {
    pid_t pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec != std::errc{}) continue;
    DSEC_TRY(const bool looks_like_one, is_launcher_of(name, state));
    if (!looks_like_one) continue;
    auto process = sys::open_pidfd(pid);
    if (!process && !is_gone(process.error())) return fail(process.error());
    // Looked at again behind the pidfd: the number may have passed to another process in between.
    DSEC_TRY(const bool is_one, is_launcher_of(name, state));
    if (process && is_one) found.push_back({pid, std::move(*process)});
  }
  return found;
}

result<std::size_t> kill_launchers(const std::filesystem::path& state, pid_t but) {
  DSEC_TRY(auto found, find_launchers(state));
  std::erase_if(found, [&](const launcher_seen& l) { return l.pid == but; });
  for (const auto& l : found) DSEC_CHECK(sys::signal_process(l.pidfd.get(), SIGKILL));
  for (const auto& l : found) {
    if (!sys::wait_ended(l.pidfd.get(), sys::after(death_timeout)))
      return fail(errc::deadline_exceeded, "the launcher of an earlier run, process " +
                                               std::to_string(l.pid) + ", does not die");
  }
  return found.size();
}

}  // namespace dsec::container

// dsecd purge: ends the daemon and every sandbox and deletes the state directory, by name and
// nothing that is not dsecd's.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "backends/sys/file.hpp"
#include "cli/cli.hpp"
#include "cli/state_dir.hpp"
#include "cli/stop.hpp"

namespace dsec::cli {
namespace {

using base::errc;
using base::fail;
using base::fail_errno;
using base::result;

/// All that docs/disk-layout.md lists, in the order in which it goes: a directory is known by the
/// last three, so that a purge that was cut short can be repeated. Names that begin with the second
/// kind have something random behind them.
constexpr std::array known_names{"images",
                                 "sandboxes",
                                 "trash",
                                 "skeleton",
                                 "probe",
                                 "doctor",
                                 "smoke",
                                 "dsecd.log",
                                 "demo-reference.json",
                                 "launcher.sock",
                                 "url",
                                 "api-key",
                                 "url.tmp",
                                 "peer-secret.tmp",
                                 "peer-secret",
                                 "node-id.tmp",
                                 "node-id",
                                 "edges.tmp",
                                 "api-key.tmp",
                                 "instance.tmp",
                                 "keys.db-wal",
                                 "keys.db-shm",
                                 "keys.db",
                                 "worker.db-wal",
                                 "worker.db-shm",
                                 "worker.db",
                                 "edges",
                                 "instance",
                                 "lock"};
constexpr std::string_view known_prefix = "demo-images.";

struct contents {
  std::vector<std::string> ours, foreign;
};

/// When it goes; known_names.size() for what is not dsecd's.
std::size_t turn_of(std::string_view name) {
  if (name.starts_with(known_prefix)) return 0;
  const auto at = std::find(known_names.begin(), known_names.end(), name);
  return static_cast<std::size_t>(at - known_names.begin());
}

result<contents> look(const base::paths& where) {
  DSEC_TRY(const auto directory, sys::open_directory(where.state()));
  DSEC_TRY(auto names, sys::list_directory(directory.get()));
  std::sort(names.begin(), names.end(), [](const auto& a, const auto& b) {
    return std::pair(turn_of(a), a) < std::pair(turn_of(b), b);
  });
  contents found;
  for (auto& name : names)
    (turn_of(name) < known_names.size() ? found.ours : found.foreign).push_back(std::move(name));
  return found;
}

/// One that a dsecd has claimed, whole or what a purge that was cut short has left of it: whatever
/// else is named here by mistake stays as it is.
result<void> check_is_state_directory(const base::paths& where) {
  std::error_code bad;
  const bool claimed =
      !instance_of(where).empty() && std::filesystem::is_regular_file(where.lock(), bad);
  const bool has_records = std::filesystem::is_regular_file(where.worker_db(), bad) ||
                           std::filesystem::is_regular_file(where.edges(), bad);
  const auto found = look(where);
  const bool last_two = found && found->ours.size() == 2;
  if (claimed && (has_records || last_two)) return {};
  return fail(errc::invalid_argument, "'" + where.state().string() +
                                          "' is no state directory of a dsecd: nothing is deleted");
}

bool confirmed() {
  std::cout << "Type yes to go on: " << std::flush;
  std::string answer;
  return std::getline(std::cin, answer) && answer == "yes";
}

void show(const base::paths& where, const contents& found) {
  std::cout << "purge ends every sandbox of instance '" << instance_of(where)
            << "' and deletes in '" << where.state().string() << "':\n";
  for (const auto& name : found.ours) std::cout << "  " << name << "\n";
  for (const auto& name : found.foreign) std::cout << "  (kept, not dsecd's: " << name << ")\n";
}

result<void> delete_ours(const base::paths& where) {
  DSEC_TRY(const auto lock, state_lock::acquire(where, instance_of(where), lock_use::clear));
  DSEC_TRY(const auto directory, sys::open_directory(where.state()));
  DSEC_TRY(const auto found, look(where));
  for (const auto& name : found.ours) {
    if (name == where.lock().filename()) continue;
    if (::unlinkat(directory.get(), name.c_str(), 0) == 0) continue;
    if (errno != EISDIR) return fail_errno("cannot remove '" + name + "'");
    DSEC_CHECK(sys::remove_tree_at(directory.get(), name));
  }
  if (::unlink(where.lock().c_str()) != 0) return fail_errno("cannot remove the lock");
  if (!found.foreign.empty()) {
    std::cout << "kept '" << where.state().string() << "': not all in it is dsecd's\n";
  } else if (::rmdir(where.state().c_str()) != 0) {
    std::cout << "kept '" << where.state().string() << "', empty: " << std::strerror(errno) << "\n";
  } else {
    std::cout << "deleted '" << where.state().string() << "'\n";
  }
  return {};
}

result<void> purge(base::config c, bool yes) {
  std::error_code bad;
  c.state = std::filesystem::weakly_canonical(c.state, bad);
  const base::paths where(c.state);
  DSEC_CHECK(check_is_state_directory(where));
  DSEC_TRY(const auto found, look(where));
  show(where, found);
  if (!yes && ::isatty(STDIN_FILENO) == 0)
    return fail(errc::invalid_argument, "nothing is deleted without a confirmation; give --yes");
  if (!yes && !confirmed()) return fail(errc::cancelled, "nothing was deleted");
  DSEC_CHECK(stop_everything(c, stop_patience));  // what is recorded of it goes now
  return delete_ours(where);
}

}  // namespace

void add_purge(CLI::App& app, context& shared) {
  auto yes = std::make_shared<bool>(false);
  auto* command = app.add_subcommand(
      "purge", "stop the daemon and every sandbox and delete the state directory, images too");
  command->add_flag("--yes", *yes, "do not ask");
  command->footer("Examples:\n  dsecd purge --yes\n");
  add_places(*command, shared);
  on_chosen(*command, shared, [yes](const base::config& c) { return purge(c, *yes); });
}

}  // namespace dsec::cli

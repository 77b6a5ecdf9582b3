#include "actors/orphans.hpp"

#include <unordered_set>

#include "backends/sys/file.hpp"
#include "base/ids.hpp"
#include "base/log.hpp"

namespace dsec::actors {

std::vector<std::string> find_orphans(const base::paths& paths,
                                      const std::vector<sandbox_record>& known) {
  const auto sandboxes = sys::open_directory(paths.sandboxes());
  if (!sandboxes) return {};  // no sandbox ever had files here
  auto names = sys::list_directory(sandboxes->get());
  if (!names) {
    base::log::warn("orphans_not_looked_for", {{"why", names.error().to_string()}});
    return {};
  }
  std::unordered_set<std::string> recorded;
  for (const auto& r : known) recorded.insert(r.id);
  // Other names are the backend's: slots that it keeps ready.
  std::erase_if(*names, [&](const std::string& name) {
    if (name.starts_with(sys::removal_prefix)) return false;
    return !base::is_valid_id(name) || recorded.contains(name);
  });
  return *std::move(names);
}

void remove_sandbox_files(const base::paths& paths, const std::string& id) {
  const auto sandboxes = sys::open_directory(paths.sandboxes());
  if (!sandboxes) return;
  if (auto ok = sys::remove_tree_at(sandboxes->get(), id);
      !ok && ok.error().code != base::errc::not_found) {
    base::log::warn("sandbox_files_kept", {{"sandbox", id}, {"why", ok.error().to_string()}});
  }
}

}  // namespace dsec::actors

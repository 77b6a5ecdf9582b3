// What a killed dsecd leaves of a sandbox whose record was not written yet: its directory. (Its
// processes and groups are ended by backend::end_unrecovered before; nobody was told of it.)
#pragma once

#include <string>
#include <vector>

#include "actors/record.hpp"
#include "base/paths.hpp"

namespace dsec::actors {

/// Sandbox directories without a record, and what a removal left that was cut short. Blocking;
/// before the first create and the first removal.
std::vector<std::string> find_orphans(const base::paths& paths,
                                      const std::vector<sandbox_record>& known);

/// What remains on disk of a sandbox that is not running. Blocking; errors are logged.
void remove_sandbox_files(const base::paths& paths, const std::string& id);

}  // namespace dsec::actors

// A new process over the state of an earlier one: every sandbox that the store knows is taken over
// from the backend, several at a time, before anything is served. Those that live go on where they
// were; of the others the results are kept; what nobody knows is ended. Blocking; main thread.
#pragma once

#include <memory>
#include <vector>

#include "actors/edge_table.hpp"
#include "actors/record.hpp"
#include "actors/worker.hpp"

namespace dsec::actors {

/// The table as a new process finds it. Sandboxes of whose processes nothing is left are written
/// down as failed. Records that cannot be written now are the writer's to report.
std::shared_ptr<edge_table> recover_sandboxes(std::vector<sandbox_record> records,
                                              const worker& env);

}  // namespace dsec::actors

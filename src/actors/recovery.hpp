// A new process over the state of an earlier one: every sandbox that the store knows is taken over
// from the backend, several at a time, before anything is served. Those that live go on where they
// were; of the others the results are kept; what nobody knows is ended. One that lives and whose
// command log cannot be read is sealed: it can be stopped, and goes on for another process. One
// that may live and cannot be taken over now is left for another process, and this one does not
// serve. Blocking; main thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "actors/edge_table.hpp"
#include "actors/record.hpp"
#include "actors/worker.hpp"
#include "base/result.hpp"

namespace dsec::actors {

/// The table as a new process finds it. Sandboxes of whose processes nothing is left are written
/// down as failed. Records that cannot be written now are the writer's to report. After an error
/// the backend leaves all sandboxes.
base::result<std::shared_ptr<edge_table>> recover_sandboxes(std::vector<sandbox_record> records,
                                                            const worker& env);

/// Of the health board, about one sandbox that was taken over and cannot be used.
std::string sealed_subject(const std::string& sandbox_id);

/// Ends what nobody took over, or goes on with that. False: something stays, health says what, and
/// it is to be called again. Blocking; one thread at a time.
bool end_unknown(const worker& env);

}  // namespace dsec::actors

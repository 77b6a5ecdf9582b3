// The worker store's table of sandboxes, class process: written to the page cache without fsync,
// because a host reboot ends the sandboxes anyway. Blocking, one thread at a time (the
// record_writer's after start-up).
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "actors/record.hpp"
#include "base/store.hpp"

namespace dsec::actors {

struct erased {
  std::string id;
};
/// One row to write: a sandbox's newest record, or that it is to go.
using record_change = std::variant<record_ptr, erased>;

class record_store {
 public:
  virtual ~record_store() = default;
  virtual base::result<std::vector<sandbox_record>> load() = 0;
  /// All or nothing.
  virtual base::result<void> apply(const std::vector<record_change>& changes) = 0;
};

/// The schema, for base::open_sqlite.
std::vector<std::string> worker_migrations();

std::unique_ptr<record_store> make_record_store(std::unique_ptr<base::store> store);

}  // namespace dsec::actors

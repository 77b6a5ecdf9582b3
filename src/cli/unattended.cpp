#include "cli/unattended.hpp"

#include <chrono>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "actors/record_store.hpp"
#include "backends/container/container_backend.hpp"
#include "base/store.hpp"

namespace dsec::cli {
namespace {

using base::result;

result<std::unique_ptr<actors::record_store>> open_records(const base::paths& where) {
  DSEC_TRY(auto store, base::open_sqlite(where.worker_db(), base::durability::process,
                                         actors::worker_migrations()));
  return actors::make_record_store(std::move(store));
}

result<std::vector<actors::sandbox_record>> living(actors::record_store& records) {
  DSEC_TRY(auto all, records.load());
  std::erase_if(all, [](const auto& r) { return base::is_terminal(r.phase); });
  return all;
}

result<void> record_as_stopped(actors::record_store& records,
                               std::vector<actors::sandbox_record> ended) {
  const auto now = std::chrono::system_clock::now();
  std::vector<actors::record_change> changes;
  for (auto& r : ended) {
    r.phase = base::phase::stopped;
    if (r.cause == base::cause::none) {
      r.cause = base::cause::killed;
      r.detail = "ended while no dsecd ran";
    }
    actors::note_end(r, now);
    changes.emplace_back(std::make_shared<const actors::sandbox_record>(std::move(r)));
  }
  return records.apply(changes);
}

what_was_left not_recorded(std::size_t count, base::error why) {
  why.message = "all sandboxes have ended, but the records do not say so: " + why.message;
  return {count, base::fail(std::move(why))};
}

}  // namespace

result<std::size_t> count_living(const base::paths& where) {
  if (!std::filesystem::exists(where.worker_db())) return 0;
  DSEC_TRY(const auto records, open_records(where));
  DSEC_TRY(const auto found, living(*records));
  return found.size();
}

result<what_was_left> end_what_is_left(const state_lock&, const base::config& c) {
  const base::paths where(c.state);
  // A coordinator's: nothing ever ran.
  if (std::filesystem::exists(where.edges()) && !std::filesystem::exists(where.worker_db()))
    return what_was_left{};
  // What runs is found by its control groups: a store that cannot be read keeps nothing alive.
  const auto records = open_records(where);
  auto found = records.and_then([](const auto& r) { return living(*r); });
  // A launcher without sandboxes may be left, too: its socket goes when it ends in order.
  if (found && found->empty() && !std::filesystem::exists(where.launcher_socket()))
    return what_was_left{};
  DSEC_CHECK(container::container_backend::end_everything(where, c.node, c.sandbox));
  if (!found) return not_recorded(0, found.error());
  const auto count = found->size();
  const auto recorded = record_as_stopped(**records, *std::move(found));
  if (!recorded) return not_recorded(count, recorded.error());
  return what_was_left{count, {}};
}

}  // namespace dsec::cli

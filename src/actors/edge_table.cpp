#include "actors/edge_table.hpp"

#include <algorithm>

#include "base/log.hpp"

namespace dsec::actors {
namespace {

/// No process, mount or group of it exists any more.
void write_off(sandbox_record& r, const worker& env) {
  const bool was_stopping = r.phase == base::phase::stopping;
  if (r.phase < base::phase::running)
    r.key.clear();  // it never ran: a retry with the key makes a new one
  r.phase = was_stopping ? base::phase::stopped : base::phase::failed;
  if (r.cause == base::cause::none) {
    r.cause = base::cause::lost;
    r.detail = "dsecd ended while it lived";
  }
  forget_env(r.spec);
  r.ended_unix_ms = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(env.wall().time_since_epoch()).count());
  env.writer->save(std::make_shared<const sandbox_record>(r));
  base::log::warn("sandbox_lost",
                  {{"sandbox", r.id}, {"to", to_string(r.phase)}, {"cause", to_string(r.cause)}});
}

}  // namespace

std::shared_ptr<edge_table> make_edge_table(std::vector<sandbox_record> records,
                                            const worker& env) {
  auto table = std::make_shared<edge_table>();
  for (auto& r : records) {
    if (!base::is_terminal(r.phase)) write_off(r, env);
  }
  std::sort(records.begin(), records.end(),
            [](const auto& a, const auto& b) { return a.ended_unix_ms < b.ended_unix_ms; });
  for (auto& r : records) {
    const auto id = r.id;
    if (!r.key.empty())
      table->keys.emplace(edge_table::key{r.owner, r.key}, used_key{id, r.body_hash});
    auto book = std::make_shared<ledger>(std::move(r));
    book->released = true;
    book->ever_ran = true;
    edge_entry e;
    e.book = std::move(book);
    e.live = false;
    table->sandboxes.emplace(id, std::move(e));
    table->ended.push_back(id);
  }
  return table;
}

}  // namespace dsec::actors

#include "actors/recovery.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "actors/exec_request.hpp"
#include "actors/file_outcome.hpp"
#include "base/log.hpp"

namespace dsec::actors {
namespace {

using base::errc;
using base::result;

constexpr std::size_t most_threads = 8;  // they wait for disks and for the launcher
constexpr std::chrono::seconds progress_every{5};

/// One record and what becomes of it.
struct taken {
  ledger_ptr book;
  bool live = false;  // has a place: it runs, or something of it is still to be ended
};

/// Nothing runs in it any more.
void write_off(ledger& book, const worker& env, base::cause why, std::string detail) {
  auto& r = book.record;
  // It never ran: a retry with the key makes a new one. (The word that it runs may have been told
  // and not written; but then somebody who uses it comes with its id.)
  if (r.phase < base::phase::running && book.commands.all_ids().empty()) r.key.clear();
  r.phase = base::phase::failed;
  if (r.cause == base::cause::none) {
    r.cause = why;
    r.detail = std::move(detail);
  }
  note_end(r, env.wall());
  auto snapshot = std::make_shared<const sandbox_record>(r);
  env.writer->save(snapshot);
  book.status.publish(std::move(snapshot));
  base::log::warn("sandbox_lost",
                  {{"sandbox", r.id}, {"cause", to_string(r.cause)}, {"detail", r.detail}});
}

bool can_come_again(const backends::known_command& known) {
  const auto* failed = std::get_if<backends::command_failed>(&known.end);
  return failed != nullptr && base::retryable(failed->why.code);
}

/// How a write ended; nullopt while that is still to come.
std::optional<base::result<std::uint64_t>> outcome_of(const backends::known_command& known,
                                                      backends::instance& instance) {
  if (known.written_size) return *known.written_size;
  if (const auto* failed = std::get_if<backends::command_failed>(&known.end))
    return base::fail(failed->why);
  if (const auto* exited = std::get_if<backends::command_exited>(&known.end))
    return outcome_of_write(instance, known.argv.at(0), *exited);
  return std::nullopt;
}

/// Writes with an id of their client's. Other file operations nobody can ask for any more.
void restore_file(ledger& book, const backends::known_command& known) {
  if (!known.id.starts_with(write_prefix) || known.argv.empty()) return;
  auto outcome = outcome_of(known, *book.instance);
  if (outcome && !*outcome && base::retryable(outcome->error().code))
    return book.instance->withdraw(known.id);
  if (const auto old = book.writes.begin(known.id, known.argv.front())) book.instance->forget(*old);
  if (!outcome) return;
  if (*outcome) book.instance->forget(known.id);  // all but its size
  book.writes.end(known.id, *std::move(outcome));
}

void restore_commands(ledger& book, const backends::recovered& found) {
  for (const auto& known : found.commands) {
    if (can_come_again(known)) {
      // The dsecd that was told so died before it had freed the id.
      book.instance->withdraw(known.id);
    } else if (std::string_view(known.id).starts_with(reserved_prefix)) {
      restore_file(book, known);
    } else {
      book.commands.restore(known);
    }
  }
  book.commands.restore_used_up(found.used_up);
}

/// A sandbox that had ended. What its end left undone is done now.
bool finish_end(ledger& book) {
  if (!book.instance) return false;
  const auto stopped = book.instance->stop();
  if (stopped) return false;
  base::log::error("sandbox_stop_incomplete",
                   {{"sandbox", book.record.id}, {"why", stopped.error().to_string()}});
  book.stop_incomplete = true;
  return true;
}

/// A sandbox that nobody had ended, and that has ended all the same.
bool settle_dead(ledger& book, const worker& env, base::cause why, std::string detail) {
  // Whoever wanted it stopped has what he wanted, once its remains are gone.
  if (book.record.phase == base::phase::stopping) return true;
  write_off(book, env, why, std::move(detail));
  return book.instance != nullptr;
}

/// Whoever asks for a command must not hear that there is none, and start it again.
void seal(ledger& book, const worker& env, const base::error& why) {
  book.sealed = base::error{errc::io,
                            "what was started in sandbox '" + book.record.id +
                                "' cannot be read: " + why.to_string() +
                                ". It runs on: mend that and start dsecd again, or stop it",
                            0};
  base::log::error("sandbox_sealed", {{"sandbox", book.record.id}, {"why", why.to_string()}});
  env.health->report(sealed_subject(book.record.id), book.sealed->message);
}

void settle_alive(ledger& book) {
  auto& r = book.record;
  book.ever_ran = r.phase >= base::phase::running;
  // Its actor finds it started, and goes on from there.
  if (r.phase < base::phase::starting) r.phase = base::phase::starting;
  base::log::debug("sandbox_taken_over", {{"sandbox", r.id},
                                          {"trace", book.trace},
                                          {"phase", to_string(r.phase)},
                                          {"commands", book.commands.live()}});
}

/// Fails when it may live and cannot be taken over.
result<taken> take_over(sandbox_record record, const worker& env) {
  taken t{std::make_shared<ledger>(std::move(record)), false};
  auto& book = *t.book;
  const bool had_ended = base::is_terminal(book.record.phase);
  book.ever_ran = true;
  book.askers.claimed = true;
  auto found = env.backend->recover(start_spec_of(book.record), make_sink(t.book));
  if (!found && found.error().code != errc::not_found) {
    return base::fail({errc::unavailable,
                       "sandbox '" + book.record.id +
                           "' cannot be taken over: " + found.error().to_string() +
                           ". Nothing was ended: mend that and start dsecd again, or end all "
                           "sandboxes with 'dsecd stop --all'",
                       0});
  }
  if (found) {
    book.instance = std::move(found->instance);
    restore_commands(book, *found);
  }
  if (had_ended) {
    t.live = finish_end(book);
  } else if (!found) {
    t.live = settle_dead(book, env, base::cause::lost, "nothing of it outlived the dsecd before");
  } else if (!found->alive) {
    t.live = settle_dead(book, env, found->died_of, std::move(found->detail));
  } else {
    settle_alive(book);
    if (found->sealed) seal(book, env, *found->sealed);
    t.live = true;
  }
  if (!found || !found->alive || had_ended) book.commands.lose_all(why_not_running(book.record));
  book.status.set_busy(book.commands.live(), 0);
  book.released = !t.live;
  return t;
}

/// Several at a time, in the order of the records, up to the first that cannot be.
class takeover {
 public:
  takeover(std::vector<sandbox_record> records, const worker& env)
      : records_(std::move(records)), env_(env), taken_(records_.size()) {}

  result<std::vector<taken>> run() {
    std::vector<std::thread> helpers;
    for (std::size_t i = 1; i < std::min(most_threads, records_.size()); ++i)
      helpers.emplace_back([this] { work(); });
    work();
    for (auto& h : helpers) h.join();
    if (!failed_) return std::move(taken_);
    // Before anything that holds an instance is let go of.
    env_.backend->leave();
    return base::fail(*failed_);
  }

 private:
  void work() {
    for (auto i = next_++; i < records_.size(); i = next_++) {
      auto t = take_over(std::move(records_[i]), env_);
      if (!t) return give_up(t.error());
      taken_[i] = *std::move(t);
      tell_progress(++done_);
    }
  }

  void give_up(const base::error& why) {
    next_ = records_.size();
    const std::scoped_lock lock(mutex_);
    if (!failed_) failed_ = why;
  }

  void tell_progress(std::size_t done) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    auto last = told_.load();
    const auto due = last + std::chrono::steady_clock::duration(progress_every).count();
    if (now < due || !told_.compare_exchange_strong(last, now)) return;
    base::log::info("taking_over", {{"done", done}, {"of", records_.size()}});
  }

  std::vector<sandbox_record> records_;
  const worker& env_;
  std::vector<taken> taken_;
  std::mutex mutex_;
  std::optional<base::error> failed_;
  std::atomic<std::size_t> next_{0}, done_{0};
  std::atomic<std::chrono::steady_clock::rep> told_{
      std::chrono::steady_clock::now().time_since_epoch().count()};
};

}  // namespace

std::string sealed_subject(const std::string& sandbox_id) {
  return "sandbox " + sandbox_id;
}

bool end_unknown(const worker& env) {
  const auto ended = env.backend->end_unrecovered();
  if (ended) {
    env.health->clear("leftovers");
    return true;
  }
  const auto why = ended.error().to_string();
  if (!env.health->has("leftovers", why)) base::log::error("leftovers_not_ended", {{"why", why}});
  env.health->report("leftovers", why);
  return false;
}

result<std::shared_ptr<edge_table>> recover_sandboxes(std::vector<sandbox_record> records,
                                                      const worker& env) {
  const auto began = std::chrono::steady_clock::now();
  DSEC_TRY(auto all, takeover(std::move(records), env).run());
  end_unknown(env);
  std::stable_sort(all.begin(), all.end(), [](const taken& a, const taken& b) {
    return a.book->record.ended_unix_ms < b.book->record.ended_unix_ms;
  });
  auto table = std::make_shared<edge_table>();
  std::size_t live = 0;
  for (auto& t : all) {
    const auto& r = t.book->record;
    if (!r.key.empty() && !r.body_hash.empty())
      table->keys.emplace(edge_table::key{r.owner, r.key}, used_key{r.id, r.body_hash});
    edge_entry e;
    e.live = t.live;
    e.taken_over = true;
    live += t.live ? 1 : 0;
    if (!t.live) table->ended.push_back(r.id);
    const auto id = r.id;
    e.book = std::move(t.book);
    table->sandboxes.emplace(id, std::move(e));
  }
  const auto spent = std::chrono::duration_cast<std::chrono::milliseconds>(
      std::chrono::steady_clock::now() - began);
  base::log::info("taken_over",
                  {{"live", live}, {"ended", all.size() - live}, {"spent_ms", spent.count()}});
  return table;
}

}  // namespace dsec::actors

// What must outlive a sandbox actor's crash: the record, the live instance, the commands and their
// results, and the events that arrive while no actor is there. The edge's table owns it; pool jobs
// hold it while they run.
//
// Three parts, three rules:
//   record, commands, instance …  only the sandbox's actor touches them (one at a time: the edge
//                                 starts the next one after it has seen the death of the last)
//   inbox                         backend threads and pool jobs add events, the actor takes them;
//                                 thread-safe
//   status                        what the edge, the reaper and listings may read at any time;
//                                 thread-safe
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <variant>
#include <vector>

#include "actors/command_table.hpp"
#include "actors/record.hpp"
#include "backends/backend.hpp"

namespace dsec::actors {

struct caller;

/// The backend's start began: the sandbox left the queue of the start pool.
struct start_begun {};
/// It is over: an instance, or why there is none (then everything is undone). Both: it started, but
/// must not run.
struct start_done {
  std::shared_ptr<backends::instance> instance;
  std::optional<base::error> why;
};
/// instance::stop() returned.
struct stop_done {
  std::optional<base::error> why;
};
/// The sandbox died by itself.
struct instance_gone {
  base::cause why = base::cause::backend;
  std::string detail;
};
/// A command that could not be started now is forgotten by the instance: its id is free again.
struct command_forgotten {
  backends::command_failed failed;
};
/// A command has written something since its output was watched.
struct output_grown {
  std::string command_id;
  backends::stream which = backends::stream::out;
};
using ledger_event = std::variant<start_begun, start_done, stop_done, instance_gone,
                                  backends::command_started, backends::command_failed,
                                  backends::command_exited, command_forgotten, output_grown>;

class inbox {
 public:
  /// Wakes the actor when the inbox was empty.
  void add(ledger_event event);
  std::vector<ledger_event> take();
  /// Whom to wake from now on; wakes at once when something is waiting.
  void wake_with(std::function<void()> wake);

 private:
  std::mutex mutex_;
  std::vector<ledger_event> events_;
  std::function<void()> wake_;
};

class sandbox_status {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  void publish(record_ptr record);
  [[nodiscard]] record_ptr record() const;

  void touch(time_point now) {
    last_use_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  }
  [[nodiscard]] time_point last_use() const {
    return time_point(time_point::duration(last_use_.load(std::memory_order_relaxed)));
  }
  void set_busy(std::uint32_t commands, std::uint32_t file_operations) {
    commands_.store(commands, std::memory_order_relaxed);
    file_operations_.store(file_operations, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint32_t commands() const { return commands_.load(std::memory_order_relaxed); }
  /// Whether anything runs in it: then it is not idle.
  [[nodiscard]] bool busy() const {
    return commands() + file_operations_.load(std::memory_order_relaxed) > 0;
  }

 private:
  mutable std::mutex mutex_;
  record_ptr record_;
  std::atomic<time_point::rep> last_use_{0};
  std::atomic<std::uint32_t> commands_{0};  // in flight
  std::atomic<std::uint32_t> file_operations_{0};
};

/// Who asked for a sandbox to be created, for as long as it may turn out that none of them is left.
struct create_askers {
  struct asker {
    std::weak_ptr<const caller> from;  // its connection
    std::uint64_t serial = 0;          // of the request on it
    std::optional<std::chrono::steady_clock::time_point> gone;
  };
  std::vector<asker> list;
  bool claimed = false;  // somebody has used it, or many have asked: it stays

  /// Since when all of them are gone.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> all_gone() const;
};

/// Writes that carry an id of their client's: none is done twice, however often it is sent. The
/// last `most` are remembered, which is more than can be on their way. The instance remembers those
/// that failed for as long as they are here (of those that ended well it never forgets the size).
class write_log {
 public:
  static constexpr std::size_t most = 1024;
  struct write {
    std::string path;
    std::optional<base::result<std::uint64_t>> outcome;  // size of the file, once it is done
  };

  [[nodiscard]] const write* find(const std::string& command_id) const;
  /// The id of a failed one that is not remembered any more, for the instance to forget.
  std::optional<std::string> begin(const std::string& command_id, std::string path);
  void end(const std::string& command_id, base::result<std::uint64_t> outcome);
  [[nodiscard]] bool has_ended(const std::string& command_id) const;
  /// It was not done: sent again, it is.
  void withdraw(const std::string& command_id);

 private:
  std::unordered_map<std::string, write> known_;
  std::deque<std::string> order_;  // of beginning
};

struct ledger {
  explicit ledger(sandbox_record r);

  sandbox_record record;
  const std::string trace;  // of the create, for logs and events
  command_table commands;
  std::shared_ptr<backends::instance> instance;
  std::uint64_t file_operations = 0;  // numbers their command ids
  write_log writes;
  bool start_in_flight = false;  // a start job was handed to the pool and has not answered
  bool stop_in_flight = false;   // a stop job likewise
  bool stop_incomplete = false;  // the last stop left something
  bool kept = false;             // the stop that shows it to worker::keep_failed is on its way
  bool ever_ran = false;
  std::optional<base::error> sealed;  // why nothing can be asked of its commands and files
  bool withdrawn = false;             // ended because nobody was left who had asked for it
  create_askers askers;
  bool released = false;                    // nothing of it is left on the host
  std::optional<base::error> start_error;   // why it never ran
  std::optional<instance_gone> early_gone;  // it died before start_done was taken
  std::deque<ledger_event>
      todo;  // taken from the inbox, not yet acted on: a crash loses at most one

  inbox events;
  sandbox_status status;
  std::atomic<bool> start_cancelled{false};  // a start job that has not begun gives up
};

using ledger_ptr = std::shared_ptr<ledger>;

/// Where an instance reports to. Holds the ledger weakly: the ledger owns the instance.
backends::event_sink make_sink(const ledger_ptr& book);

}  // namespace dsec::actors

// Writes records behind the actors' backs, in order, on one thread of its own (the store pool).
// save() and erase() only note what is to be written and return a ticket: a transition costs its
// actor no wait. Whoever acts in the kernel does so on a blocking pool and calls wait(ticket)
// there, which has everything written at once: before a stop acts, and before anybody is told that
// a start has. What nobody waits for is written after `linger`, when the sandbox's first command is
// through: a kill -9 in between loses the newest phase of a sandbox, never its existence once it
// was told, and recovery treats all living phases alike. Of several changes of one sandbox only the
// newest is written, and all that are due go into one transaction, so a sandbox's whole life costs
// about four. The queue is bounded by the number of sandboxes (one entry each). Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "actors/record_store.hpp"

namespace dsec::actors {

class record_writer {
 public:
  static constexpr std::chrono::milliseconds linger{25};
  /// The way from a start's thread to the launcher: on two CPUs the writing would be in its way.
  static constexpr std::chrono::microseconds breath{400};
  /// Until what could not be written is tried again without a newer change. Nothing else may ever
  /// change of a sandbox that has ended: the next dsecd would still find it running.
  static constexpr std::chrono::milliseconds retry{1000};

  /// Ticket of a change: changes with lower or equal numbers are older.
  using ticket = std::uint64_t;

  /// `outcome` is called on the writer's thread when a batch could not be written (its changes are
  /// written with the next one, but for sandboxes that have changed again), and when one could
  /// after one that could not.
  record_writer(std::unique_ptr<record_store> store,
                std::function<void(const base::result<void>&)> outcome);
  /// Writes what is due, then ends the thread.
  ~record_writer();
  record_writer(const record_writer&) = delete;
  record_writer& operator=(const record_writer&) = delete;

  ticket save(record_ptr record);
  ticket erase(std::string id);

  /// Has everything up to `t` written soon, without waiting for it: after a breath, in which the
  /// caller can hand on what it is at.
  void hurry(ticket t);
  /// Blocks (pool threads only) until everything up to `t` is written; the error of the batch that
  /// held the change `t` when it failed.
  base::result<void> wait(ticket t);

 private:
  /// Batches in a row that could not be written.
  struct failed_range {
    ticket first = 0;
    ticket last = 0;
    base::error why;
  };
  /// So many are remembered; then the two oldest become one, with what was written between them.
  static constexpr std::size_t most_failed = 16;

  void remember_failure(ticket first, ticket last, base::error why);
  ticket add(std::string id, record_change change);
  void run();

  std::unique_ptr<record_store> store_;
  std::function<void(const base::result<void>&)> outcome_;
  std::mutex mutex_;
  std::condition_variable due_, written_;
  std::map<std::string, record_change> pending_;
  ticket last_ = 0;  // given out
  ticket hurried_ = 0;
  ticket wanted_ = 0;  // somebody waits for it
  ticket done_ = 0;    // written, or failed and to be tried again
  std::deque<failed_range> failed_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace dsec::actors

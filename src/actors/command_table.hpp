// The commands of one sandbox: which ids were ever used, which run, how the others ended.
// Owned by the sandbox's ledger; only its actor touches it. A known id is never started again:
// results of the last max_results ended commands (a few more between two evictions) are kept, of
// older ones only that the id is used up.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "backends/backend.hpp"
#include "base/result.hpp"

namespace dsec::actors {

struct command {
  enum class state : std::uint8_t {
    starting,  // handed to the backend
    running,
    ended,    // `exit` is valid
    refused,  // never ran; `why` is valid
    lost,     // its sandbox ended before it did, and nobody saw how; `why` is valid
  };

  std::string id;
  std::vector<std::string> argv;  // for display, cut at max_shown_argv bytes
  std::string trace;              // of its exec; empty: an earlier process started it
  std::uint64_t output_cap = 0;
  state now = state::starting;
  std::chrono::system_clock::time_point started;
  backends::command_exited exit;
  base::error why;
  bool kill_wanted = false;  // asked for before the instance knew it

  [[nodiscard]] bool over() const { return now >= state::ended; }
  [[nodiscard]] std::uint64_t kept_bytes() const;
};

class command_table {
 public:
  static constexpr std::size_t max_results = 4096;
  static constexpr std::size_t evict_batch = 256;  // results over the bound before evict() acts
  static constexpr std::uint64_t max_kept_bytes = 1ULL
                                                  << 30U;  // of spooled output of ended commands
  static constexpr std::size_t max_ids = 1'000'000;        // in a sandbox's life
  static constexpr std::size_t max_shown_argv = 4096;

  /// nullptr when unknown, or no longer kept.
  [[nodiscard]] const command* find(const std::string& id) const;
  /// The id was used, but its result is not kept any more.
  [[nodiscard]] bool used_up(const std::string& id) const;

  /// errc::capacity when the sandbox has used up its ids. The id must be new.
  base::result<void> add(const backends::exec_spec& spec, const std::string& trace = {});
  /// The backend did not take it, or could not start it now: as if it had never been added.
  void withdraw(const std::string& id);

  /// To be killed as soon as it has started.
  void want_kill(const std::string& id);

  /// As an earlier process left it; in order of starting.
  void restore(const backends::known_command& known);
  /// Hashes (base::id_hash) of ids that must not be used again.
  void restore_used_up(const std::vector<std::uint64_t>& hashes);

  /// Fates, as the backend reports them; unknown ids and repetitions are ignored (false).
  bool started(const backends::command_started& event);
  bool failed(const backends::command_failed& event);
  bool exited(const backends::command_exited& event);

  /// The sandbox is over, and with it all that ran: their ids. Their output stays readable.
  std::vector<std::string> lose_all(const base::error& why);

  /// Ids whose results are dropped to stay within the bounds; their spools are to be forgotten.
  std::vector<std::string> evict();

  /// In order of starting.
  [[nodiscard]] std::vector<const command*> all() const;
  /// Of commands whose spools exist.
  [[nodiscard]] std::vector<std::string> all_ids() const;
  [[nodiscard]] std::uint32_t live() const { return live_; }

 private:
  command* live_command(const std::string& id);
  void close(command& c, command::state how);

  std::unordered_map<std::string, command> kept_;
  std::deque<std::string> order_;              // ids in order of starting; may name evicted ones
  std::deque<std::string> over_;               // in order of ending
  std::unordered_set<std::uint64_t> used_up_;  // base::id_hash of evicted ids
  std::uint64_t kept_bytes_ = 0;
  std::uint32_t live_ = 0;
};

}  // namespace dsec::actors

// One fake sandbox: a table of commands with their output, which is its command log too, and a map
// of files. At most one backend at a time hears what happens in it; what happens meanwhile is told
// to the next one. Thread-safe; events are handed over without a lock held.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <variant>
#include <vector>

#include "backends/backend.hpp"
#include "backends/fake/script.hpp"

namespace dsec::fake {

class host;

class sandbox final : public std::enable_shared_from_this<sandbox> {
 public:
  sandbox(host& owner, std::string id) : host_(owner), id_(std::move(id)) {}

  [[nodiscard]] const std::string& id() const { return id_; }
  [[nodiscard]] bool lives() const;
  [[nodiscard]] bool is_heard_by(const std::shared_ptr<const void>& owner) const;

  /// From now on `owner` hears what happens.
  void attach(std::shared_ptr<const void> owner, backends::event_sink sink);
  /// Nobody does, if it was `owner`.
  void detach(const std::shared_ptr<const void>& owner);
  /// What its command log says, and how it is; instance is left empty.
  backends::recovered describe();
  /// What happened since and was not told yet.
  void tell_news();

  base::result<void> exec(backends::exec_spec spec);
  base::result<void> kill(const std::string& command_id);
  base::result<backends::output_piece> read_output(const std::string& command_id,
                                                   backends::stream which, std::uint64_t offset,
                                                   std::uint64_t length,
                                                   std::optional<std::uint64_t> total);
  base::result<void> watch_output(const std::string& command_id, backends::stream which,
                                  std::function<void()> grown);
  void forget(const std::string& command_id);
  void withdraw(const std::string& command_id);
  base::result<void> stop();

  /// A held command writes to its stdout.
  void write(const std::string& command_id, std::string_view text);
  void fail(base::cause why, std::string detail);
  void finish(const std::string& command_id, const fate& f, bool timed_out = false);

 private:
  struct running {};
  using end_of_command = std::variant<running, backends::command_failed, backends::command_exited>;
  struct command {
    backends::exec_spec spec;  // without input
    fate what;
    std::chrono::system_clock::time_point started;
    end_of_command end;
    bool told = false;                            // its end was handed on, and is in the log
    bool forgotten = false;                       // write_file: only its size is kept
    std::vector<std::function<void()>> watchers;  // of its stdout
  };
  using news = std::vector<
      std::variant<backends::command_started, backends::command_failed, backends::command_exited>>;

  fate decide(const backends::exec_spec& spec);
  fate read_file(const backends::exec_spec& spec) const;
  fate write_file(const backends::exec_spec& spec);
  void schedule(const std::string& command_id, const fate& f, std::chrono::milliseconds timeout);
  void end(const std::string& command_id, const fate& f, bool timed_out, bool killed);
  std::optional<backends::known_command> known(const command& c) const;
  [[nodiscard]] bool over() const { return stopped_ || gone_; }

  host& host_;
  const std::string id_;
  mutable std::mutex mutex_;
  std::shared_ptr<const void> owner_;
  std::shared_ptr<const backends::event_sink> sink_;
  std::unordered_map<std::string, command> commands_;
  std::deque<std::string> order_;
  std::unordered_set<std::uint64_t> used_up_;
  std::map<std::string, std::string> files_;
  bool stopped_ = false;
  std::optional<std::pair<base::cause, std::string>> gone_;
};

}  // namespace dsec::fake

// A container sandbox: backends::instance over its parts. Commands are written down in its log and
// go out on the channel, events come back on the event loop's thread, are written down and handed
// to the owner's sink. Its destructor stops it, unless the backend was told to leave.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "backends/backend.hpp"
#include "backends/container/command_table.hpp"
#include "backends/container/sandbox_parts.hpp"

namespace dsec::container {

class container_instance final : public backends::instance {
 public:
  static base::result<std::unique_ptr<container_instance>> start(sandbox_host& host,
                                                                 const backends::start_spec& spec,
                                                                 backends::event_sink sink);
  /// What an earlier dsecd left of it; see backend::recover. (container_recovery.cpp)
  static base::result<backends::recovered> recover(sandbox_host& host,
                                                   const backends::start_spec& spec,
                                                   backends::event_sink sink);
  ~container_instance() override;
  container_instance(const container_instance&) = delete;
  container_instance& operator=(const container_instance&) = delete;

  base::result<void> exec(backends::exec_spec spec) override;
  base::result<void> kill(const std::string& command_id) override;
  base::result<backends::output_piece> read_output(const std::string& command_id,
                                                   backends::stream which, std::uint64_t offset,
                                                   std::uint64_t length,
                                                   std::optional<std::uint64_t> total) override;
  base::result<void> watch_output(const std::string& command_id, backends::stream which,
                                  std::function<void()> grown) override;
  void forget(const std::string& command_id) override;
  void withdraw(const std::string& command_id) override;
  base::result<backends::usage> usage() override;
  base::result<void> stop() override;

 private:
  container_instance(sandbox_host& host, const backends::start_spec& spec,
                     backends::event_sink sink);
  base::result<std::shared_ptr<aether_channel>> channel() const;
  base::result<void> send_exec(const backends::exec_spec& spec, std::uint64_t cap);
  bool send_again(const frame_failed& failed);
  void settled(const std::string& command_id);
  void receive_exited(const frame_exited& exited);
  std::optional<std::uint64_t> written_size(const command_record& command,
                                            const backends::command_exited& event) const;
  void receive_failed(const frame_failed& failed);
  void receive_unknown(const std::string& command_id);
  void tell_failed(const backends::command_failed& event, const command_record& command);
  void drop(const std::string& command_id, bool used_up);
  void note(const log_record& record, std::function<void()> then = {});
  void compact_if_grown();
  base::result<void> run();

  // container_recovery.cpp
  base::result<void> find_out(backends::recovered& r, bool alive);
  base::result<std::vector<backends::known_command>> read_log(std::vector<std::uint64_t>& used_up);
  base::result<bool> take_over();
  base::result<void> adopt(listed_sandbox& held);
  base::result<void> ask_for_ends(const std::vector<backends::known_command>& commands);

  void receive(const incoming& in);
  void lost(const std::string& why);

  std::shared_ptr<sandbox_parts> parts_;
  backends::event_sink sink_;
  command_table commands_;

  /// Sent and neither started, ended nor killed yet: kept to be sent once more when the spawner
  /// dies under it.
  struct attempt {
    frame_bytes datagram;
    aether_channel::fd_list fds;
  };
  std::atomic<std::chrono::steady_clock::time_point> last_exec_{};
  std::mutex attempts_mutex_;
  std::unordered_map<std::string, attempt> attempts_;

  bool sealed_ = false;  // its log cannot be read: see backends::recovered
  bool half_taken_ =
      false;  // until it is taken over: whatever becomes of this, the sandbox goes on

  std::mutex stop_mutex_;  // one stop at a time; others wait for it
  bool stopped_ = false;   // guarded by stop_mutex_

  std::mutex state_mutex_;  // guards the two below
  bool running_ = false;    // start() is through, or it was taken over: the owner hears of
                            // what happens
  std::optional<std::string> lost_;
};

}  // namespace dsec::container

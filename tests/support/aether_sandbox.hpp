// A sandbox made by hand around the embedded aether, without launcher and dsecd: user namespace,
// groups of its own name, pid and mount namespaces, the fixed descriptors of guest/channel.hpp; and
// the other end of the channel. One thread. Needs root; everything made here is gone after the
// destructor. Problems of the harness itself throw.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "guest/channel.hpp"

namespace dsec::tests {

using std::chrono::milliseconds;

enum class tree {
  host,  // the host's own files, read-only in effect (its owners are nobody inside), fresh /proc
         // and /tmp
  tiny,  // busybox with its shell, /etc/passwd with user `joe` (1000, groups 1000 and 2000)
  bare,  // one static program, /bin/busybox, and nothing else: no shell, no libc, no /etc
};

struct sandbox_options {
  tree root = tree::host;
  std::uint64_t memory_bytes = 0;  // limit of the commands' group; 0: none
  std::uint32_t pids = 0;
  std::uint64_t files = 0;  // hard limit on aether's descriptors; 0: the caller's
  bool no_cores = false;    // a hard limit of 0 on core files
};

struct command {
  std::string id{};
  std::vector<std::string> argv{};
  guest::exec_kind kind = guest::exec_kind::program;
  std::vector<std::string> env = {"PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL=C"};
  std::string cwd = "/";
  std::string user = "root";
  std::string input{};
  std::chrono::milliseconds timeout{0};
  std::uint64_t cap = 1U << 20U;
  std::uint64_t offset = 0, length = 0;
  std::uint32_t mode = 0644;
  bool payload = false;  // strings in a memfd whatever their size
};

/// What became of a command.
struct outcome {
  std::optional<guest::failed_body> failed;
  std::optional<guest::exited_body> exited;
  std::string out, err;  // what the spools kept, the dropped range left out; less than the totals
                         // promise when a spool was cut

  [[nodiscard]] bool ok() const { return exited && exited->status == 0; }
  /// 0..255, or -1 when it did not end by exit.
  [[nodiscard]] int code() const;
  [[nodiscard]] int signal() const;
};

class aether_sandbox {
 public:
  explicit aether_sandbox(sandbox_options options = {});
  ~aether_sandbox();
  aether_sandbox(const aether_sandbox&) = delete;
  aether_sandbox& operator=(const aether_sandbox&) = delete;

  /// Why this machine cannot run it; empty when it can.
  static std::string missing();
  /// Whether limits on memory can be set for the commands' group.
  static bool memory_controller();
  /// Whether each command's group has a memory controller of its own (version 2).
  static bool memory_by_command();

  /// Sends the exec; the id is made up when empty. Returns it.
  std::string start(command c);
  /// Waits until the command has failed or exited.
  outcome wait(const std::string& id, milliseconds limit = milliseconds(10000));
  outcome run(command c, milliseconds limit = milliseconds(10000)) {
    return wait(start(std::move(c)), limit);
  }
  outcome sh(const std::string& script, milliseconds limit = milliseconds(10000));
  /// Waits for `started`; false when it failed or ended without.
  bool wait_started(const std::string& id, milliseconds limit = milliseconds(5000));

  /// Waits until a running command has written something to stdout.
  bool wait_output(const std::string& id, milliseconds limit = milliseconds(25000));

  void send_id(guest::msg type, const std::string& id);
  void send_plain(guest::msg type);
  /// Reads what has come; waits up to `limit` for the first datagram. False at the end of the
  /// channel.
  bool pump(milliseconds limit);
  /// A new dsecd in place of this one: says hello; results come again as they are not acknowledged.
  guest::hello_body reconnect(std::uint32_t last_seq);
  /// How often a message of this type has come, for any command.
  int seen(guest::msg type) const;
  int seen(guest::msg type, const std::string& id) const;
  std::uint32_t last_seq() const { return received_; }
  void acknowledge(bool on) { acknowledge_ = on; }

  /// Closes the last end of the channel.
  void hang_up();
  /// Waits for aether's own end; its wait(2) status.
  std::optional<int> wait_end(milliseconds limit);
  bool alive();
  /// Lowers or raises aether's limit on descriptors while it runs.
  void limit_files(std::uint64_t most) const;
  /// From now on aether finds no room behind this offset of any file.
  void limit_file_size(std::uint64_t most) const;
  /// Descriptors open in aether.
  std::size_t open_files() const;
  /// Any bytes as a datagram, with this many descriptors.
  void send_raw(const std::string& bytes, std::size_t fds = 0);
  pid_t pid() const { return aether_; }
  /// Host pids in the slot's group `which`, its children included.
  std::vector<pid_t> processes(const std::string& which) const;

 private:
  struct kept {
    int spools[2] = {-1, -1};
    std::uint64_t cap = 0;
    bool started = false;
    std::optional<guest::failed_body> failed;
    std::optional<guest::exited_body> exited;
    std::string out, err;
  };

  void make_groups();
  void make_user_namespace();
  void start_aether();
  [[noreturn]] void become_aether(int channel_far);
  void build_root() const;
  void send(guest::msg type, const void* body, std::size_t n, const std::string& tail = {},
            const std::vector<int>& fds = {});
  void send_bytes(const std::string& bytes, const std::vector<int>& fds);
  void on_datagram(const char* bytes, std::size_t n);
  std::string read_spool(const kept& k, int stream) const;
  void limit(int resource, std::uint64_t most) const;
  void remove_groups();

  sandbox_options options_;
  std::string name_;
  std::uint32_t uid_ = 0, base_ = 0;  // aether's, and the first of the range inside
  std::filesystem::path slot_, root_;
  std::vector<std::filesystem::path> legacy_;  // v1 groups: <controller>/<name>
  std::filesystem::path oom_file_;
  std::uint32_t oom_kind_ = 2;
  int channel_ = -1, userns_ = -1;
  pid_t aether_ = -1;
  std::uint32_t sent_ = 0, received_ = 0;
  bool acknowledge_ = true;
  std::optional<guest::hello_body> hello_;
  std::map<std::string, kept> commands_;
  std::map<std::pair<guest::msg, std::string>, int> seen_;
  int next_id_ = 0;
};

/// Whether this machine cannot run an aether_sandbox; the results then say why (skip.hpp).
bool skipped();

}  // namespace dsec::tests

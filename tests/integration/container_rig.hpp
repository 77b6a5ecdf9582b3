// What the container backend's tests work with: a backend of their own (instance, state directory,
// uids), sandboxes in it whose events are recorded, commands that are waited for. The destructor
// closes the backend and checks that nothing is left on the host.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backends/container/container_backend.hpp"
#include "support/eventually.hpp"
#include "support/leak_check.hpp"

namespace dsec::test {

using namespace std::chrono_literals;

/// What became of a command.
struct ended {
  std::optional<backends::command_exited> exited;
  std::optional<base::error> failed;
  std::string out, err;

  [[nodiscard]] int code() const { return exited ? exited->exit_code : -1; }
};

/// Everything the owner of a sandbox is told.
class recorder {
 public:
  backends::event_sink sink();
  bool wait_started(const std::string& id, std::chrono::milliseconds limit);
  /// Exited or failed; nullopt after the limit.
  std::optional<ended> wait_ended(const std::string& id, std::chrono::milliseconds limit);
  std::optional<std::pair<base::cause, std::string>> wait_gone(std::chrono::milliseconds limit);
  [[nodiscard]] int times_gone() const;

 private:
  struct state {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::string, int> started;
    std::map<std::string, ended> ends;
    std::optional<std::pair<base::cause, std::string>> gone;
    int times_gone = 0;
  };
  std::shared_ptr<state> state_ = std::make_shared<state>();
};

/// A sandbox whose events are recorded.
class container_box {
 public:
  /// Ids that it gives to commands begin with `prefix`.
  container_box(std::unique_ptr<backends::instance> instance, recorder events,
                std::string prefix = "c")
      : instance_(std::move(instance)), events_(std::move(events)), prefix_(std::move(prefix)) {}

  backends::instance* operator->() { return instance_.get(); }
  recorder& events() { return events_; }

  /// These throw when a command cannot be sent or does not end in time.
  ended run(backends::exec_spec spec, std::chrono::milliseconds limit = 20s);
  ended sh(const std::string& script, std::chrono::milliseconds limit = 20s);
  ended wait(const std::string& id, std::chrono::milliseconds limit = 20s);
  /// Starts a command and waits until it runs; answers its id.
  std::string begin(backends::exec_spec spec);
  std::string begin_sh(const std::string& script);

  void stop();

 private:
  std::string next_id() { return prefix_ + std::to_string(++last_); }
  std::unique_ptr<backends::instance> instance_;
  recorder events_;
  std::string prefix_;
  int last_ = 0;
};

backends::exec_spec shell(const std::string& script);
backends::exec_spec program(std::vector<std::string> argv);
backends::exec_spec with_id(backends::exec_spec spec, const std::string& id);

/// EROFS images, made once per run:
///   box   busybox with its applets, /etc/passwd with root and joe (1000), /attack
///         (src/guest/attack)
///   bare  /attack and nothing else: no libc, no shell, no /etc
const std::filesystem::path& box_image(const std::string& name);

struct rig_options {
  std::uint32_t slot_pool = 2;
  std::uint32_t max_sandboxes = 64;  // at most
};

class container_rig {
 public:
  explicit container_rig(const rig_options& options = {}, bool open_now = true);
  ~container_rig();
  container_rig(const container_rig&) = delete;
  container_rig& operator=(const container_rig&) = delete;

  /// Opens the backend and ends what an earlier one left. Throws when it fails.
  void open();
  /// The same in two steps, with recover() in between.
  void open_only();
  void end_unrecovered();
  /// The backend leaves its sandboxes, whose boxes must be gone, for the next open_only().
  void leave();
  container::container_backend& backend() { return *backend_; }
  [[nodiscard]] const leak_scope& scope() const { return scope_; }
  [[nodiscard]] const base::node_config& node() const { return node_; }

  /// A spec over the box image.
  static backends::start_spec spec(const std::string& id, const std::string& image = "box");
  /// Throws when it fails.
  container_box start(const backends::start_spec& spec);
  container_box start(const std::string& id) { return start(spec(id)); }
  base::result<container_box> try_start(const backends::start_spec& spec);

  struct taken_box {
    container_box box;
    backends::recovered what;  // but for the instance, which is in the box
  };
  base::result<taken_box> try_recover(const std::string& id);
  /// Throws when it fails.
  taken_box recover(const std::string& id);
  /// All that the next daemon does when this is the only sandbox: open_only(), recover(),
  /// end_unrecovered().
  taken_box inherit(const std::string& id);

  /// Its group of version 2.
  [[nodiscard]] std::filesystem::path group() const;
  /// Host pids of the processes in the groups of all its sandboxes, aethers included.
  [[nodiscard]] std::vector<pid_t> inhabitants() const;
  [[nodiscard]] std::optional<pid_t> launcher_pid() const;

 private:
  leak_scope scope_;
  base::node_config node_;
  std::vector<std::string> descriptors_;
  std::unique_ptr<container::container_backend> backend_;
};

}  // namespace dsec::test

// What every kind of sandbox must do. One backend object per kind and worker, one instance per live
// sandbox. Threads: backend::start, instance::stop and the file calls of the host block and run on
// a blocking pool; instance::exec and kill never block and may be called from any thread;
// events arrive on the backend's own thread and must only hand over. A backend says what it cannot
// do by errc::unsupported, found at start-up by probe(), never a surprise later.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/phase.hpp"
#include "base/result.hpp"

namespace dsec::backends {

struct layer_ref {
  std::string digest;          // hex of SHA-256
  std::filesystem::path blob;  // EROFS image
};

struct limits {
  std::uint32_t cpu_millis = 1000;  // 1000 = one CPU
  std::uint64_t memory_bytes = 512ULL << 20U;
  std::uint32_t pids = 4096;
  std::uint32_t nofile = 65536;
};

struct start_spec {
  std::string sandbox_id;
  std::string hostname;
  std::vector<layer_ref> layers;  // bottom first
  backends::limits limits;
};

enum class exec_kind : std::uint8_t { program, shell, read_file, write_file };

/// File operations whose ids begin like this are not written down for the next dsecd: nobody could
/// ask for them by name.
inline constexpr std::string_view passing_file_prefix = "dsec.file";

struct exec_spec {
  std::string id;  // base::is_valid_command_id
  exec_kind kind = exec_kind::program;
  std::vector<std::string> argv;  // shell: argv[0] is the script; files: argv[0] is the path
  std::vector<std::string> env;   // NAME=VALUE, complete: nothing is inherited
  std::string cwd = "/";
  std::string user = "root";  // NAME, UID, NAME:GROUP, UID:GID
  std::string stdin_data;
  std::chrono::milliseconds timeout{0};     // 0 = none
  std::uint64_t output_cap = 64ULL << 20U;  // bytes kept per stream
  std::uint64_t offset = 0, length = 0;     // files
  std::uint32_t mode = 0644;                // write_file
};

struct command_started {
  std::string id;
  std::chrono::system_clock::time_point at;
};

/// Why a command was never started: code is exec_failed, no_shell, invalid_argument, capacity or
/// unavailable.
struct command_failed {
  std::string id;
  base::error why;
};

struct command_exited {
  std::string id;
  int exit_code = 0;  // 0..255; 128 + signal
  int signal = 0;
  bool timed_out = false, killed = false, oom_killed = false;
  std::chrono::microseconds duration{0};
  std::chrono::system_clock::time_point started;
  std::uint64_t stdout_total = 0, stderr_total = 0;
};

/// Handed over by value from the backend's thread. Of commands that run when the sandbox dies or is
/// stopped nothing more is heard.
struct event_sink {
  std::function<void(command_started)> started;
  std::function<void(command_failed)> failed;
  std::function<void(command_exited)> exited;
  std::function<void(base::cause, std::string detail)>
      gone;  // the sandbox has failed; at most once
};

enum class stream : std::uint8_t { out, err };

struct output_piece {
  std::string data;
  std::uint64_t offset = 0;  // of data; later than asked for when bytes were dropped in between
};

struct usage {
  std::uint64_t memory_bytes = 0;
  std::uint64_t cpu_usec = 0;
  std::uint32_t tasks = 0;
};

class instance {
 public:
  virtual ~instance() = default;

  /// Starts a command; its fate arrives as events. Refused ids and full tables are errors at once.
  virtual base::result<void> exec(exec_spec spec) = 0;
  /// SIGKILL for the command's whole group.
  virtual base::result<void> kill(const std::string& command_id) = 0;
  /// Bytes [offset, offset + length) of a command's stream, from its spool. `total` is the stream's
  /// length from command_exited; nullopt while the command runs (then only what lies before the
  /// ring can be read).
  virtual base::result<output_piece> read_output(const std::string& command_id, stream which,
                                                 std::uint64_t offset, std::uint64_t length,
                                                 std::optional<std::uint64_t> total) = 0;
  /// Calls `grown`, once, when the command has written to the stream after this call, or when there
  /// is nothing to watch any more; perhaps also when it has not. On the backend's own thread: it
  /// must only hand over. Does not block. errc::capacity when the host has no more watches.
  virtual base::result<void> watch_output(const std::string& command_id, stream which,
                                          std::function<void()> grown) = 0;
  /// Drops the spools of an ended command. Its id stays used up; of a write_file that ended well
  /// recover() still tells id and written_size.
  virtual void forget(const std::string& command_id) = 0;
  /// Drops the spools of a command that could not be started now, or of a write that failed for
  /// now: its id is free again.
  virtual void withdraw(const std::string& command_id) = 0;
  virtual base::result<backends::usage> usage() = 0;
  /// Kills all, waits until nothing is left, gives back slot, groups and upper. Idempotent, at once
  /// when nothing is left; keeps going on errors and reports them together.
  virtual base::result<void> stop() = 0;
};

/// A command that an earlier dsecd started, as it is written down beside its spools.
struct known_command {
  struct pending {};  // it runs, or how it ended is still to come as an event
  std::string id;
  exec_kind kind = exec_kind::program;
  std::vector<std::string> argv;  // for display: long ones are cut
  std::uint64_t output_cap = 0;
  std::optional<std::chrono::system_clock::time_point> started;
  std::variant<pending, command_failed, command_exited> end;
  std::optional<std::uint64_t> written_size;  // write_file that ended well: of the file afterwards
};

/// What is left of a sandbox that an earlier dsecd started.
struct recovered {
  std::unique_ptr<backends::instance> instance;  // output can be read and it can be stopped
  bool alive = false;                            // commands can be started; events arrive
  base::cause died_of = base::cause::lost;       // when it is not: `backend` if its aether is known
                                                 // to have ended by itself
  std::string detail;                            // why it is not alive
  std::vector<known_command> commands;           // in order of starting
  std::vector<std::uint64_t>
      used_up;  // base::id_hash of ids that were forgotten: never to be used again
  /// Why it is not known what was started in it, though it lives. Then nothing is started in it,
  /// nor is anything heard of what runs; it can be stopped, and left to another process.
  std::optional<base::error> sealed{};
};

/// One thing a backend needs and whether this host has it, found by doing it.
struct probe_item {
  std::string what;
  bool have = false;
  std::string detail;    // how it was found, or what came of trying
  std::string remedy{};  // how to mend it where it is missing
};

/// What a backend counts, for /metrics.
struct backend_stats {
  std::uint32_t slots_ready = 0;
  std::uint64_t launcher_deaths = 0;
  /// Times that another launcher had taken the place of one that died, or of several, and held all
  /// sandboxes.
  std::uint64_t launcher_restarts = 0;
};

class backend {
 public:
  virtual ~backend() = default;
  [[nodiscard]] virtual std::string name() const = 0;
  /// Waits for nothing; any thread.
  [[nodiscard]] virtual backend_stats stats() const { return {}; }
  /// Blocks; before the first start().
  virtual std::vector<probe_item> probe() = 0;
  /// Blocks until the sandbox answers on its channel, or fails with everything undone.
  virtual base::result<std::unique_ptr<instance>> start(const start_spec& spec,
                                                        event_sink sink) = 0;
  /// Takes over what an earlier dsecd left of the sandbox, alive or ended. Blocks, but waits for
  /// nothing inside. Before the first start(), any thread, several at a time. Events of a living
  /// one arrive from now on, perhaps before this returns. errc::not_found: nothing of it is left at
  /// all. Any other error: it may live, and is left as it is; the next process may try again.
  virtual base::result<recovered> recover(const start_spec& spec, event_sink sink) = 0;
  /// Ends what an earlier dsecd left and nobody took over. Between the last recover() and the first
  /// start(), and again, in the background, until it succeeds; an error names what stays. As long
  /// as that would be in its way start() is errc::unavailable. Blocks.
  virtual base::result<void> end_unrecovered() = 0;
  /// From now on instances that are destroyed leave their sandboxes running, for the next dsecd to
  /// recover.
  virtual void leave() = 0;
  /// Tops up whatever the backend keeps ready (slots). Blocks; called in the background.
  virtual void refill() = 0;
};

}  // namespace dsec::backends

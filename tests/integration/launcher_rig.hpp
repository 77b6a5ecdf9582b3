// What the launcher's tests work with: a launcher of their own in a state directory of their own, a
// plain client of its protocol, groups, images. Everything made is removed by destructors; failures
// throw, so that a test stops.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "backends/sys/unique_fd.hpp"
#include "guest/launch.hpp"

namespace dsec::test {

using sys::unique_fd;

struct rig_error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A directory on the disk (id-mapped uppers do not work on the tmpfs of older kernels), removed at
/// the end.
class disk_dir {
 public:
  disk_dir();
  ~disk_dir();
  disk_dir(const disk_dir&) = delete;
  disk_dir& operator=(const disk_dir&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// EROFS images, made once per run:
///   busybox   bin/busybox, etc/which = "base"; nothing else: no proc, dev, sys, tmp
///   tool      etc/which = "tool", opt/tool
///   hostile   proc a link to etc, dev/sda and etc/sda device nodes, dev/null a regular file
const std::filesystem::path& image(const std::string& name);

struct slot_groups {
  unique_fd slot, init, oom;
  std::uint32_t oom_v2 = 2;
  std::vector<unique_fd> init_tasks, cmd_tasks;
  std::vector<std::filesystem::path> made;  // directories, parents first

  slot_groups() = default;
  slot_groups(slot_groups&&) = default;
  slot_groups& operator=(slot_groups&&) = default;
  ~slot_groups();
  /// Groups "<name>/init" and "<name>/cmd" in version 2 and in those of version 1 that are there.
  static slot_groups make(const std::string& name, uid_t aether);
};

struct reply {
  std::vector<char> bytes;
  std::vector<unique_fd> fds;

  template <class T>
  [[nodiscard]] const T& as() const {
    if (bytes.size() != sizeof(T)) throw rig_error("reply of the wrong size");
    return *reinterpret_cast<const T*>(bytes.data());
  }
  [[nodiscard]] std::uint32_t type() const {
    return reinterpret_cast<const guest::launch_header*>(bytes.data())->type;
  }
};

/// The other end of a stand-in's channel (standin/standin.cpp).
class inside {
 public:
  inside() = default;
  explicit inside(unique_fd channel) : channel_(std::move(channel)) {}

  struct result {
    int status = -1;  // exit code, or 128 + signal
    std::string output;
  };
  [[nodiscard]] result sh(const std::string& script) const;
  [[nodiscard]] result program(const std::string& path) const;
  [[nodiscard]] std::string self() const;
  [[nodiscard]] std::string boot() const;
  void quit(int code) const;
  /// True when the other end closes within five seconds.
  [[nodiscard]] bool closes() const;
  [[nodiscard]] int fd() const { return channel_.get(); }

 private:
  [[nodiscard]] std::string ask(char kind, const std::string& text) const;
  unique_fd channel_;
};

/// A connection; requests wait for their reply (ten seconds), events are put aside.
class launch_client {
 public:
  explicit launch_client(const std::filesystem::path& socket);

  template <class T>
  reply ask(guest::launch type, T request, const std::vector<int>& fds = {}) {
    request.h.type = static_cast<std::uint32_t>(type);
    request.h.req = ++last_;
    return exchange(&request, sizeof request, fds);
  }
  /// "done" or "step: errno name".
  template <class T>
  std::string order(guest::launch type, const T& request, const std::vector<int>& fds = {}) {
    return outcome(ask(type, request, fds));
  }
  static std::string outcome(const reply& r);

  std::string attach(const std::string& name, const std::filesystem::path& blob);
  std::string detach(const std::string& name);
  std::string make_slot(std::uint32_t number, std::uint32_t uid_base, std::uint32_t aether_uid);
  std::string drop_slot(std::uint32_t number);
  std::string release(const std::string& sandbox);
  std::string shutdown();
  guest::launch_hello hello(unique_fd* layers_ns = nullptr);

  struct listed {
    guest::launch_listed what;
    unique_fd channel, pidfd;
  };
  std::map<std::string, listed> list();

  /// The next `exited` event, waiting for it.
  guest::launch_exited wait_exited();
  /// True when the launcher closes this connection within five seconds.
  bool closed();

 private:
  reply exchange(const void* request, std::size_t size, const std::vector<int>& fds);
  reply receive();

  unique_fd socket_;
  std::uint32_t last_ = 0;
  std::vector<guest::launch_exited> events_;
};

struct sandbox_options {
  std::vector<std::string> layers = {"busybox"};
  std::string hostname = "box";
  std::uint64_t shm_bytes = 1 << 20;
};

class launcher_rig {
 public:
  /// Ids of this process alone, for eight slots: several runs on one machine do not meet.
  static std::uint32_t uid_base();
  static std::uint32_t aether_uid();

  enum class guest_program { standin, aether };
  /// Starts a launcher. `environment`: for failure points.
  explicit launcher_rig(std::vector<std::string> environment = {},
                        guest_program program = guest_program::standin);
  /// Kills the launcher and checks that everything else ends by itself.
  ~launcher_rig();
  launcher_rig(const launcher_rig&) = delete;
  launcher_rig& operator=(const launcher_rig&) = delete;

  launch_client& client() { return *client_; }
  void connect();
  [[nodiscard]] const std::filesystem::path& state() const { return state_.path(); }
  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] int listening() const { return listening_.get(); }

  /// SIGKILL, and waits until it is gone.
  void kill_launcher();
  /// Another launcher for the same state directory; enters the namespace when given.
  void start_launcher(int layers_ns = -1);

  struct made {
    std::string outcome;  // "done" or "step: what: errno name"
    inside box;
    unique_fd pidfd;
  };
  /// Slot `number` gets its own ids and groups; attaches the layers it needs.
  made create(const std::string& id, std::uint32_t number, const sandbox_options& options = {});
  /// The parts of create, for tests that leave one out.
  void prepare(const std::string& id, std::uint32_t number, const sandbox_options& options);
  made ask_create(const std::string& id, std::uint32_t number, const sandbox_options& options);
  [[nodiscard]] std::filesystem::path upper(const std::string& id) const;
  /// Kills its aether, waits for the event, releases it.
  void destroy(const std::string& id, made& m);

 private:
  disk_dir state_;
  std::vector<std::string> environment_;
  unique_fd listening_, aether_;
  pid_t pid_ = 0;
  std::optional<launch_client> client_;
  std::map<std::uint32_t, slot_groups> groups_;
};

/// The calling process's own mount table, to be compared before and after.
std::string mount_table();
/// Loop devices in use on images of this process.
std::string loop_devices();
/// Processes whose real uid is one of this process's.
std::vector<pid_t> processes_of_tests();

}  // namespace dsec::test

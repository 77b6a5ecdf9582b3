// A command between its exec datagram and its end, and the fixed table of them. Owned by the proxy;
// one thread.
#pragma once

#include "guest/aether/known_commands.hpp"
#include "guest/aether/spawner_link.hpp"
#include "guest/aether/spool_writer.hpp"

namespace dsec::guest::aether {

enum class phase : uint8_t {
  free,
  queued,    // the spawner could not take it yet
  starting,  // handed to the spawner, exec not seen
  running,   // exec seen
  draining,  // main process dead, output or group not yet at their end
};

/// What a start needs again when it had to wait: the request, and its strings, which are in the
/// payload or, once keep() was called, in a mapping of their own.
struct waiting_start {
  start_request request = {};
  bool waits = false;
  char* strings = nullptr;
  unique_fd payload;

  /// `inline_strings` are those of the datagram; with a payload it has none. False: no memory.
  bool keep(const char* inline_strings);
  void drop();
};

struct live_command {
  phase state = phase::free;
  bool killed = false;
  bool timed_out = false;
  known_command* known = nullptr;
  uint64_t order = 0;  // of arrival

  waiting_start waiting;
  unique_fd stdin_fd;
  output_stream out[2];
  unique_fd status_pipe;
  spawner_link::lease lease;
  int group = 0;  // take() says -1: none yet

  int pid = 0;  // 0: not known (yet)
  int wait_status = 0;
  uint32_t failure = 0;  // told by the child or the spawner; taken when the pipe closes
  int32_t failure_errno = 0;

  uint64_t cap = 0;
  uint64_t oom_before = 0;
  uint64_t start = 0, start_realtime = 0, end = 0;  // ns
  uint64_t timeout_at = 0;                          // take() says never
  uint64_t check_at = 0;                            // when the present phase is looked at again
  uint64_t give_up_at = 0;  // when the present phase ends whatever has happened
};

class live_commands {
 public:
  static constexpr int capacity = 256;

  /// Takes no more at once than `descriptors` of this process suffice for; until then, none.
  void fit(uint64_t descriptors);
  [[nodiscard]] uint32_t limit() const { return limit_; }

  live_command* take();
  void release(live_command& c);
  live_command* of_pid(int pid);
  live_command* first_queued();
  [[nodiscard]] uint32_t count() const { return count_; }
  [[nodiscard]] uint16_t index(const live_command& c) const {
    return static_cast<uint16_t>(&c - table_);
  }
  live_command& at(uint16_t i) { return table_[i]; }

  /// All that are not free; `body` may release the one it is given.
  template <class function>
  void each(function body) {
    for (int i = 0; i < used_; ++i) {
      if (table_[i].state != phase::free) body(table_[i]);
    }
  }

 private:
  int used_ = 0;  // none is live at or beyond this index
  uint32_t count_ = 0;
  uint32_t limit_ = 0;
  uint64_t next_order_ = 0;
  live_command table_[capacity];
};

}  // namespace dsec::guest::aether

// One sandbox on this worker: its phase, its commands, and who waits for what of it.
// Runs pooled; kernel work that blocks goes to the pools and comes back through the ledger's inbox.
// Fails alone: everything but who waits lives in the ledger, which the edge owns. The edge starts
// the next actor over the same ledger, and that one goes on where this one was. Whoever waited is
// told that the actor is down (and connections ask again once, see ws_conn.hpp).
//
// sandbox.cpp            interface, events, alarms
// sandbox_lifecycle.cpp  transition, start, stop
// sandbox_exec.cpp       commands
// sandbox_output.cpp     their output
// sandbox_files.cpp      files
// sandbox_lease.cpp      the lease it is bound to
#pragma once

#include <caf/typed_event_based_actor.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/alarm.hpp"
#include "actors/command_waits.hpp"
#include "actors/interfaces.hpp"
#include "actors/output_waits.hpp"
#include "actors/waiter.hpp"
#include "actors/worker.hpp"

namespace dsec::actors {

/// To oneself: the ledger's inbox has events.
struct inbox_filled {};
/// To oneself: whether the record could be written with which the sandbox was bound to a lease.
struct lease_written {
  lease bound;
  bool ok = false;
};
/// To oneself: what was read for an output_wait.
struct output_read {
  std::uint64_t token = 0;
  reply answer;
  bool nothing = false;  // there is none yet
};
using sandbox_self = sandbox_actor::extend<caf::reacts_to<inbox_filled>,   //
                                           caf::reacts_to<lease_written>,  //
                                           caf::reacts_to<answer_made>,    //
                                           caf::reacts_to<output_read>,    //
                                           caf::reacts_to<alarm_rang>>;

struct sandbox_state {
  static constexpr const char* name = "sandbox";

  struct file_operation {
    std::vector<waiter> who;
    backends::exec_spec spec;  // without data
  };

  sandbox_self::pointer self;
  worker_ptr env;
  ledger_ptr book;
  sandbox_parent parent;

  std::vector<waiter> create_waiters;
  std::vector<waiter> stop_waiters;
  command_waits waits;
  std::unordered_map<std::string, file_operation> file_operations;  // by command id
  output_waits outputs;
  answer_desk desk;
  std::string just_ended;  // the command whose end is being handled
  time_point phase_since;
  std::optional<time_point> stop_again;  // the last stop was incomplete
  std::optional<lease> recorded_lease;   // while it is not known that the present one is written
  alarm deadlines;

  explicit sandbox_state(sandbox_self::pointer s) : self(s) {}
  /// Tells everybody who waits that this actor is down.
  ~sandbox_state();

  // sandbox.cpp
  void begin(worker_ptr worker, ledger_ptr ledger, sandbox_parent edge);
  caf::result<reply> on_call(const call& c);
  caf::result<reply> on_await_running(const await_running& m);
  void on_inbox();
  void on_alarm(const alarm_rang& rang);
  void on_forget();
  void on_abandoned(const creates_abandoned& m);

  [[nodiscard]] const std::string& id() const { return book->record.id; }
  [[nodiscard]] base::phase phase() const { return book->record.phase; }
  [[nodiscard]] time_point now() const { return self->clock().now(); }
  void rearm();
  /// Publishes how many commands and file operations are in flight, for the idle limit and
  /// listings.
  void publish_use();
  waiter make_waiter(const call& c);
  /// The answer to a request that need not wait.
  [[nodiscard]] reply refusal(const call& c, const base::error& why) const;
  /// As many as may wait for commands, or for output, of this sandbox.
  [[nodiscard]] base::error too_many_wait(std::size_t most, const char* what) const;
  /// Runs `job` on the copy pool; what it returns answers `w`.
  bool answer_from_pool(waiter w, std::function<proto::frame()> job);
  /// What the sandbox is, once that is written: who is told so relies on it, whatever becomes of
  /// dsecd.
  void answer_when_written(waiter w);
  [[nodiscard]] sandbox_view view() const;
  caf::result<reply> on_get_usage(const call& c);

  // sandbox_lifecycle.cpp
  /// The only way the phase changes: checks the edge, has the record written, then publishes it.
  /// Whoever acts on it in the kernel waits for the returned ticket first.
  record_writer::ticket transition(base::phase to, base::cause why = base::cause::none,
                                   std::string detail = {});
  /// What has become of it, as an event.
  void tell_phase();
  /// Has the record written as it is, and shows it to others.
  record_writer::ticket publish();
  void resume();
  void start();
  void end(base::cause why, const std::string& detail);
  void on_end(const end_sandbox& m);
  void end_if_unused();
  void end_if_abandoned(time_point at);
  void on_new_parent(const sandbox_parent& edge);
  void stop_instance(record_writer::ticket written);
  void release();
  void answer_all();
  void on_instance();
  void on_stillborn(const instance_gone& e);
  void fail_start(const base::error& why);
  void apply(const start_begun& e);
  void apply(const start_done& e);
  void apply(const stop_done& e);
  void apply(const instance_gone& e);
  caf::result<reply> on_stop(const call& c, proto::SandboxRef::Reader request,
                             capnp::Text::Reader key);
  void give_up_key();
  void answer_create_waiters();
  void answer_stop_waiters();
  void expire_lifecycle_waiters(time_point at);

  // sandbox_exec.cpp
  /// What has become of a command, as an event and (at level debug) a line of the log.
  void tell_command(event_kind kind, const command& c);
  void apply(const backends::command_started& e);
  void apply(const backends::command_failed& e);
  void apply(const backends::command_exited& e);
  void apply(const command_forgotten& e);
  void forget_then_tell(const backends::command_failed& e);
  base::result<void> hand_over(const call& c, backends::exec_spec spec);
  caf::result<reply> on_exec(const call& c, proto::Exec::Reader request);
  caf::result<reply> on_get_command(const call& c, proto::CommandRef::Reader request);
  caf::result<reply> on_kill_command(const call& c, proto::CommandRef::Reader request);
  caf::result<reply> on_list_commands(const call& c);
  caf::result<reply> join_command(const std::string& command_id, command_wait w);
  void settle(const std::string& command_id);
  void answer_command(command_wait& w, const command& c);
  void answer_late(command_wait& w, const std::string& command_id);
  void after_end(const std::string& command_id);
  void expire_command_waits(time_point at);
  /// The sandbox is over: so is what runs in it, though no event says so.
  void lose_commands();
  [[nodiscard]] base::error unknown_command(const std::string& command_id) const;

  // sandbox_output.cpp
  caf::result<reply> on_read_output(const call& c, proto::ReadOutput::Reader request);
  void read_for(output_wait w);
  void on_output_read(const output_read& m);
  base::result<void> watch_output(const output_range& of);
  void cannot_watch(output_wait w, const base::error& why);
  void apply(const output_grown& e);
  void wake_for_output(const std::string& command_id);
  void expire_output_waits(time_point at);

  // sandbox_files.cpp
  caf::result<reply> on_read_file(const call& c, proto::ReadFile::Reader request);
  caf::result<reply> on_write_file(const call& c, proto::WriteFile::Reader request);
  caf::result<reply> begin_file_operation(const call& c, base::result<backends::exec_spec> spec);
  std::string next_file_id();
  void forget_file(const std::string& command_id);
  caf::result<reply> join_write(const call& c, const std::string& command_id);
  void write_exited(const backends::command_exited& e, file_operation operation);
  bool file_failed(const backends::command_failed& e);
  void refuse_file(const backends::command_failed& e);
  bool file_exited(const backends::command_exited& e);
  void expire_file_operations(time_point at);
  void fail_file_operations(const base::error& why);

  // sandbox_lease.cpp
  caf::result<reply> on_set_detached(const call& c, proto::SetDetached::Reader request);
  void follow_lease(const caller& from);
  void bind(const lease& l);
  void on_lease_written(const lease_written& m);
  void end_if_unleased();
};

sandbox_self::behavior_type sandbox(sandbox_self::stateful_pointer<sandbox_state> self,
                                    worker_ptr env, ledger_ptr book, sandbox_parent parent);

}  // namespace dsec::actors

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::inbox_filled)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::lease_written)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(dsec::actors::output_read)

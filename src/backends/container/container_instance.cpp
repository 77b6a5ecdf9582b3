#include "backends/container/container_instance.hpp"

#include <fcntl.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "backends/sys/file.hpp"
#include "base/ids.hpp"
#include "base/log.hpp"
#include "base/text.hpp"

namespace dsec::container {
namespace {

/// After a start until spool files are made ready anew: at once, that would take a CPU from the
/// command.
constexpr std::chrono::milliseconds spool_delay{5};
/// Between two tries to write down what ended while there was no room for it.
constexpr std::chrono::seconds late_retry{1};
/// Commands that follow each other sooner come in a row.
constexpr std::chrono::milliseconds row_interval{500};

using backends::command_exited;
using backends::exec_kind;
using base::errc;
using base::fail;
using base::result;

std::chrono::system_clock::time_point to_time(std::uint64_t realtime_ns) {
  const auto since_epoch = std::chrono::nanoseconds(static_cast<std::int64_t>(realtime_ns));
  return std::chrono::system_clock::time_point(
      std::chrono::duration_cast<std::chrono::system_clock::duration>(since_epoch));
}

command_exited to_event(const frame_exited& frame) {
  const auto& b = frame.body;
  command_exited e;
  e.id = frame.id;
  if (WIFSIGNALED(b.status)) {
    e.signal = WTERMSIG(b.status);
    e.exit_code = 128 + e.signal;  // as shells report it
  } else {
    e.exit_code = WEXITSTATUS(b.status);
  }
  e.timed_out = (b.flags & guest::exited_timed_out) != 0;
  e.killed = (b.flags & guest::exited_killed) != 0;
  e.oom_killed = (b.flags & guest::exited_oom) != 0;
  e.duration = std::chrono::microseconds(b.duration_us);
  e.started = to_time(b.start_realtime_ns);
  e.stdout_total = b.total[0];
  e.stderr_total = b.total[1];
  return e;
}

/// A file of its own, so that no reader is ever waited for.
result<sys::unique_fd> make_stdin(const std::string& data) {
  // Readable by all: programs open /dev/stdin again under their own user.
  return sys::sealed_memfd("stdin", std::as_bytes(std::span(data)), 0444);
}

result<void> check(const backends::exec_spec& spec) {
  if (!base::is_valid_command_id(spec.id))
    return fail(errc::invalid_argument, "'" + base::shown(spec.id, 80) + "' is not a command id");
  if (spec.argv.empty() || (spec.argv[0].empty() && spec.kind != exec_kind::shell))
    return fail(errc::invalid_argument, "command '" + spec.id + "' names no program");
  if (spec.timeout.count() < 0) return fail(errc::invalid_argument, "the timeout is negative");
  return {};
}

/// Whether it must be known to the next dsecd.
bool is_logged(const backends::exec_spec& spec) {
  const bool is_file = spec.kind == exec_kind::read_file || spec.kind == exec_kind::write_file;
  return !is_file || !spec.id.starts_with(backends::passing_file_prefix);
}

/// A sandbox that is idle or has ended may have no other record to write.
void write_late_soon(sandbox_host& host, const std::weak_ptr<command_log>& log) {
  host.chores.post_later(late_retry, [&host, log] {
    const auto living = log.lock();
    if (living && !living->write_late()) write_late_soon(host, log);
  });
}

/// A file that is read goes through the spool whole: what was asked for must not be dropped from
/// it.
std::uint64_t spool_cap(const backends::exec_spec& spec) {
  return valid_spool_cap(spec.kind == exec_kind::read_file ? std::max(spec.length, spec.output_cap)
                                                           : spec.output_cap);
}

}  // namespace

container_instance::container_instance(sandbox_host& host, const backends::start_spec& spec,
                                       backends::event_sink sink)
    : parts_(std::make_shared<sandbox_parts>(host, spec)), sink_(std::move(sink)) {
  parts_->events.receive = [this](const incoming& in) { receive(in); };
  parts_->events.closed = [this](const std::string& why) { lost(why); };
}

result<std::unique_ptr<container_instance>> container_instance::start(
    sandbox_host& host, const backends::start_spec& spec, backends::event_sink sink) {
  std::unique_ptr<container_instance> made(new container_instance(host, spec, std::move(sink)));
  DSEC_CHECK(host.sandboxes.add(made->parts_));
  DSEC_CHECK(made->run());
  return made;
}

/// Whatever a failed start could not undo is tried once more by the destructor, which logs what
/// remains.
result<void> container_instance::run() {
  DSEC_CHECK(parts_->start());
  std::unique_lock lock(state_mutex_);
  running_ = !lost_;
  if (running_) return {};
  base::error why{errc::unavailable, "the sandbox died as soon as it ran: " + *lost_, 0};
  lock.unlock();  // closing the channel waits for lost()
  return parts_->abandon(std::move(why));
}

container_instance::~container_instance() {
  if (parts_->host.leaving || half_taken_) {
    // No callback may come any more. All else of the sandbox stays as it is.
    if (const auto channel = parts_->open_channel()) channel->close();
  } else if (const auto stopped = stop(); !stopped) {
    base::log::error("sandbox_left", {{"sandbox", parts_->spec.sandbox_id},
                                      {"error", stopped.error().to_string()}});
  }
  const auto written = parts_->log ? parts_->log->write_late() : result<void>();
  if (!written)
    base::log::error("command_log_not_written", {{"sandbox", parts_->spec.sandbox_id},
                                                 {"error", written.error().to_string()}});
}

result<std::shared_ptr<aether_channel>> container_instance::channel() const {
  if (auto channel = parts_->open_channel()) return channel;
  return fail(errc::wrong_phase, "sandbox '" + parts_->spec.sandbox_id + "' does not run");
}

result<void> container_instance::exec(backends::exec_spec spec) {
  DSEC_CHECK(check(spec));
  DSEC_CHECK(channel());
  if (sealed_) {
    return fail(errc::io, "what was started in sandbox '" + parts_->spec.sandbox_id +
                              "' is not known: nothing is, lest it runs twice");
  }
  const auto cap = spool_cap(spec);
  const bool logged = is_logged(spec);
  DSEC_CHECK(commands_.add(spec.id, {spec.kind, spec.argv[0], spec.cwd, spec.user, cap, logged}));
  if (logged) {
    if (auto begun = parts_->log->begin(describe(spec, cap)); !begun) {
      commands_.remove(spec.id);
      begun.error().message =
          "disk: command '" + spec.id + "' cannot be written down: " + begun.error().message;
      return begun;
    }
  }
  auto sent = send_exec(spec, cap);
  const auto now = std::chrono::steady_clock::now();
  const bool in_a_row = now - last_exec_.exchange(now) < row_interval;
  parts_->host.chores.post_later(
      spool_delay, [parts = std::weak_ptr(parts_),
                    files = in_a_row ? spool_dir::ready_in_use : spool_dir::ready_at_first] {
        const auto living = parts.lock();
        if (living && living->open_channel()) (void)living->spool->prepare(files);
      });
  if (!sent) withdraw(spec.id);
  compact_if_grown();
  return sent;
}

result<void> container_instance::send_exec(const backends::exec_spec& spec, std::uint64_t cap) {
  DSEC_TRY(const auto channel, this->channel());
  DSEC_TRY(auto frame, encode_exec(spec, cap));
  std::vector<sys::unique_fd> fds;
  if (!spec.stdin_data.empty()) {
    DSEC_TRY(auto input, make_stdin(spec.stdin_data));
    fds.push_back(std::move(input));
  }
  DSEC_TRY(auto output, parts_->spool->create(spec.id));
  fds.push_back(std::move(output.first));
  fds.push_back(std::move(output.second));
  if (!frame.payload.empty()) {
    DSEC_TRY(auto payload, sys::sealed_memfd("arguments", std::as_bytes(std::span(frame.payload))));
    fds.push_back(std::move(payload));
  }
  attempt a{std::move(frame.datagram),
            std::make_shared<const std::vector<sys::unique_fd>>(std::move(fds))};
  {
    const std::scoped_lock lock(attempts_mutex_);
    attempts_[spec.id] = a;
  }
  auto sent = channel->send(std::move(a.datagram), std::move(a.fds));
  if (!sent) settled(spec.id);
  return sent;
}

/// Root inside may kill or stop the spawner at any moment; aether then has another one. A command
/// that met this and is known not to have run is sent once more, under the same id.
bool container_instance::send_again(const frame_failed& failed) {
  if (failed.why != guest::failure::spawner || failed.sys_errno != ECHILD) return false;
  const std::scoped_lock lock(attempts_mutex_);  // until it is sent: see kill()
  const auto found = attempts_.find(failed.id);
  if (found == attempts_.end()) return false;
  attempt a = std::move(found->second);
  attempts_.erase(found);  // so that there is no third time
  const auto channel = parts_->open_channel();
  return channel && channel->send(encode_id(guest::msg::forget, failed.id)) &&
         channel->send(std::move(a.datagram), std::move(a.fds));
}

void container_instance::settled(const std::string& command_id) {
  const std::scoped_lock lock(attempts_mutex_);
  attempts_.erase(command_id);
}

result<void> container_instance::kill(const std::string& command_id) {
  if (!commands_.find(command_id)) return fail(errc::not_found, "no command '" + command_id + "'");
  DSEC_TRY(const auto channel, this->channel());
  // Either it is not sent once more any more, or that went out before the kill does.
  const std::scoped_lock lock(attempts_mutex_);
  attempts_.erase(command_id);
  return channel->send(encode_id(guest::msg::kill, command_id));
}

result<backends::output_piece> container_instance::read_output(const std::string& command_id,
                                                               backends::stream which,
                                                               std::uint64_t offset,
                                                               std::uint64_t length,
                                                               std::optional<std::uint64_t> total) {
  const auto command = commands_.find(command_id);
  if (!command) return fail(errc::not_found, "no command '" + command_id + "'");
  return parts_->spool->read(command_id, which, command->spool_cap, offset, length, total);
}

result<void> container_instance::watch_output(const std::string& command_id, backends::stream which,
                                              std::function<void()> grown) {
  if (!commands_.find(command_id)) return fail(errc::not_found, "no command '" + command_id + "'");
  return parts_->host.outputs.once(parts_->spool->file(command_id, which), std::move(grown));
}

void container_instance::forget(const std::string& command_id) {
  drop(command_id, true);
}

void container_instance::withdraw(const std::string& command_id) {
  drop(command_id, false);
}

/// The log first, however long that takes: a spool that is in no log is deleted by the next dsecd,
/// but a command that aether has forgotten and the log has not would look as if it had never
/// arrived, and would run twice.
void container_instance::drop(const std::string& command_id, bool used_up) {
  const auto command = commands_.find(command_id);
  if (!command) return;
  auto forget_inside = [channel = std::weak_ptr(parts_->open_channel()), command_id] {
    if (const auto open = channel.lock())
      (void)open->send(encode_id(guest::msg::forget, command_id));
  };
  if (command->logged)
    note(dropped_record{command_id, used_up}, std::move(forget_inside));
  else
    forget_inside();
  parts_->spool->forget(command_id);
  commands_.remove(command_id);
  compact_if_grown();
}

void container_instance::note(const log_record& record, std::function<void()> then) {
  parts_->log->note(record, std::move(then));
  if (parts_->log->lagging()) write_late_soon(parts_->host, parts_->log);
}

void container_instance::compact_if_grown() {
  if (!parts_->log->grown()) return;
  parts_->host.chores.post([log = parts_->log] {
    if (const auto done = log->compact(); !done)
      base::log::warn("command_log_not_compacted", {{"error", done.error().to_string()}});
  });
}

result<backends::usage> container_instance::usage() {
  const std::scoped_lock lock(parts_->mutex);  // the groups stay while they are read
  if (parts_->leaving || !parts_->place)
    return fail(errc::wrong_phase, "sandbox '" + parts_->spec.sandbox_id + "' does not run");
  return parts_->host.groups.usage(parts_->place->groups);
}

result<void> container_instance::stop() {
  const std::scoped_lock lock(stop_mutex_);
  if (stopped_) return {};
  auto outcome = parts_->stop();
  if (!outcome) return outcome;
  stopped_ = true;
  if (parts_->log) parts_->log->close();
  parts_->host.sandboxes.remove(*parts_);
  parts_->host.chores.post([&host = parts_->host] {
    if (host.closing) return;
    if (const auto filled = host.slots.refill(); !filled)
      base::log::warn("slots_not_refilled", {{"error", filled.error().to_string()}});
  });
  return {};
}

void container_instance::receive(const incoming& in) {
  // Not acknowledged, it is told again to the dsecd that can read the log.
  if (sealed_) return;
  if (const auto* started = std::get_if<frame_started>(&in.body)) {
    settled(started->id);
    if (commands_.start(started->id))
      sink_.started({started->id, to_time(started->start_realtime_ns)});
  } else if (const auto* exited = std::get_if<frame_exited>(&in.body)) {
    receive_exited(*exited);
  } else if (const auto* failed = std::get_if<frame_failed>(&in.body)) {
    receive_failed(*failed);
  } else if (const auto* unknown = std::get_if<frame_unknown>(&in.body)) {
    receive_unknown(unknown->id);
  } else if (std::holds_alternative<frame_degraded>(in.body)) {
    base::log::warn("spawner_replaced", {{"sandbox", parts_->spec.sandbox_id}});
  }
}

void container_instance::receive_exited(const frame_exited& exited) {
  settled(exited.id);
  const auto command = commands_.end(exited.id);
  if (!command) {
    // Told before; or a file operation of an earlier dsecd, which nobody will forget.
    const auto channel = commands_.find(exited.id) ? nullptr : parts_->open_channel();
    if (channel) (void)channel->send(encode_id(guest::msg::forget, exited.id));
    return;
  }
  const auto event = to_event(exited);
  if (command->logged) note(exited_record{event, written_size(*command, event)});
  sink_.exited(event);
}

/// What the helper said on its standard error: 8 bytes, written a moment ago.
std::optional<std::uint64_t> container_instance::written_size(const command_record& command,
                                                              const command_exited& event) const {
  if (command.kind != exec_kind::write_file || event.exit_code != 0) return std::nullopt;
  std::uint64_t size = 0;
  const auto said = parts_->spool->read(event.id, backends::stream::err, command.spool_cap, 0,
                                        sizeof size, event.stderr_total);
  if (!said || said->data.size() != sizeof size) return std::nullopt;
  std::memcpy(&size, said->data.data(), sizeof size);
  return size;
}

void container_instance::receive_failed(const frame_failed& failed) {
  if (send_again(failed)) return;
  settled(failed.id);
  if (const auto command = commands_.end(failed.id))
    tell_failed({failed.id, describe_failure(*command, failed.why, failed.sys_errno)}, *command);
}

/// The answer to a question about a command that an earlier dsecd wrote down and did not send.
void container_instance::receive_unknown(const std::string& command_id) {
  if (const auto command = commands_.end_unknown(command_id))
    tell_failed(
        {command_id, {errc::unavailable, "dsecd ended before the sandbox heard of the command", 0}},
        *command);
}

void container_instance::tell_failed(const backends::command_failed& event,
                                     const command_record& command) {
  if (command.logged) note(event);
  sink_.failed(event);
}

/// The channel closes by itself at most once, and not after stop() has closed it.
void container_instance::lost(const std::string& why) {
  {
    const std::scoped_lock lock(state_mutex_);
    lost_ = why;
    if (!running_) return;
  }
  sink_.gone(base::cause::backend, why);
}

}  // namespace dsec::container

#include "backends/fake/instance.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <utility>

#include "guest/spool.hpp"

namespace dsec::fake {
namespace {

using base::errc;

std::string as_bytes(std::uint64_t n) {
  std::string bytes(sizeof n, '\0');
  std::memcpy(bytes.data(), &n, sizeof n);
  return bytes;
}

fate no_such_file(const std::string& path) {
  fate f;
  f.refused = base::error{errc::not_found, "cannot read '" + path + "': No such file", 0};
  return f;
}

}  // namespace

instance::instance(backend& owner, std::string id, backends::event_sink sink)
    : owner_(owner), id_(std::move(id)), sink_(std::move(sink)) {}

base::result<void> instance::step(std::string_view what) const {
  if (!owner_.script_.on_step) return {};
  return owner_.script_.on_step(what, id_);
}

fate instance::read_file(const backends::exec_spec& spec) const {
  const auto file = files_.find(spec.argv.at(0));
  if (file == files_.end()) return no_such_file(spec.argv.at(0));
  fate f;
  if (spec.offset < file->second.size()) f.out = file->second.substr(spec.offset, spec.length);
  f.err = as_bytes(file->second.size());
  return f;
}

fate instance::write_file(const backends::exec_spec& spec) {
  auto& content = files_[spec.argv.at(0)];
  if (spec.offset == 0) content.clear();
  if (content.size() < spec.offset) content.resize(spec.offset);
  content.replace(spec.offset, spec.stdin_data.size(), spec.stdin_data);
  fate f;
  f.err = as_bytes(content.size());
  return f;
}

fate instance::decide(const backends::exec_spec& spec) {
  if (spec.kind == backends::exec_kind::read_file) return read_file(spec);
  if (spec.kind == backends::exec_kind::write_file) return write_file(spec);
  return owner_.script_.run ? owner_.script_.run(spec) : fate{};
}

base::result<void> instance::exec(backends::exec_spec spec) {
  DSEC_CHECK(step("exec"));
  const auto command_id = spec.id;
  const auto timeout = spec.timeout;
  fate f;
  {
    const std::scoped_lock lock(mutex_);
    if (stopped_ || gone_) return base::fail(errc::unavailable, "instance is stopped");
    if (commands_.contains(command_id))
      return base::fail(errc::already_exists, "command id is known");
    f = decide(spec);
    if (!f.refused)
      commands_[command_id] = {std::move(spec), f, false, std::chrono::system_clock::now()};
  }
  owner_.note("exec " + id_ + " " + command_id);
  if (f.refused) {
    sink_.failed({command_id, *f.refused});
    return {};
  }
  sink_.started({command_id, std::chrono::system_clock::now()});
  schedule(command_id, f, timeout);
  return {};
}

void instance::schedule(const std::string& command_id, const fate& f,
                        std::chrono::milliseconds timeout) {
  const bool times_out = timeout.count() > 0 && (f.held || f.after > timeout);
  if (f.held && !times_out) return;
  if (!times_out && f.after.count() == 0) return end(command_id, f, false, false);
  owner_.timer_->after(times_out ? timeout : f.after,
                       [weak = weak_from_this(), command_id, f, times_out] {
                         if (const auto self = weak.lock()) self->finish(command_id, f, times_out);
                       });
}

void instance::finish(const std::string& command_id, const fate& f, bool timed_out) {
  end(command_id, f, timed_out, false);
}

void instance::end(const std::string& command_id, const fate& f, bool timed_out, bool killed) {
  backends::command_exited e;
  {
    const std::scoped_lock lock(mutex_);
    const auto it = commands_.find(command_id);
    if (it == commands_.end() || it->second.over || stopped_ || gone_) return;
    auto& c = it->second;
    c.over = true;
    c.what.out = f.out;
    c.what.err = f.err;
    e.id = command_id;
    e.signal = timed_out || killed ? SIGKILL : f.signal;
    e.exit_code = e.signal != 0 ? 128 + e.signal : f.exit_code;
    e.timed_out = timed_out;
    e.killed = killed;
    e.oom_killed = f.oom_killed;
    e.started = c.started;
    e.duration = std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::system_clock::now() - c.started);
    e.stdout_total = f.out.size();
    e.stderr_total = f.err.size();
  }
  sink_.exited(e);
}

base::result<void> instance::kill(const std::string& command_id) {
  DSEC_CHECK(step("kill"));
  {
    const std::scoped_lock lock(mutex_);
    if (!commands_.contains(command_id))
      return base::fail(errc::not_found, "no command '" + command_id + "'");
  }
  owner_.note("kill " + id_ + " " + command_id);
  end(command_id, {}, false, true);
  return {};
}

base::result<backends::output_piece> instance::read_output(const std::string& command_id,
                                                           backends::stream which,
                                                           std::uint64_t offset,
                                                           std::uint64_t length,
                                                           std::optional<std::uint64_t> total) {
  DSEC_CHECK(step("read_output"));
  const std::scoped_lock lock(mutex_);
  const auto it = commands_.find(command_id);
  if (it == commands_.end())
    return base::fail(errc::not_found, "no spool of command '" + command_id + "'");
  const auto& all = which == backends::stream::out ? it->second.what.out : it->second.what.err;
  const guest::spool_layout layout{it->second.spec.output_cap};
  std::uint64_t end = std::min<std::uint64_t>(all.size(), total.value_or(layout.half()));
  if (offset >= layout.dropped_from() && offset < layout.dropped_to(end))
    offset = layout.dropped_to(end);
  if (offset < layout.dropped_from() && end > layout.cap) end = layout.dropped_from();
  if (offset >= end) return backends::output_piece{{}, offset};
  return backends::output_piece{all.substr(offset, std::min(length, end - offset)), offset};
}

void instance::forget(const std::string& command_id) {
  owner_.note("forget " + id_ + " " + command_id);
  const std::scoped_lock lock(mutex_);
  commands_.erase(command_id);
}

base::result<backends::usage> instance::usage() {
  return backends::usage{};
}

base::result<void> instance::stop() {
  if (stopped()) return {};
  auto failed = step("stop");
  if (!failed) return failed;  // to be called again
  {
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
  }
  owner_.note("stop " + id_);
  return {};
}

void instance::fail(base::cause why, std::string detail) {
  {
    const std::scoped_lock lock(mutex_);
    gone_ = true;
  }
  sink_.gone(why, std::move(detail));
}

bool instance::stopped() const {
  const std::scoped_lock lock(mutex_);
  return stopped_;
}

}  // namespace dsec::fake

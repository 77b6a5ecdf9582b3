#include "backends/fake/sandbox.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <utility>

#include "backends/fake/host.hpp"
#include "base/ids.hpp"
#include "guest/spool.hpp"

namespace dsec::fake {
namespace {

using base::errc;

std::string as_bytes(std::uint64_t n) {
  std::string bytes(sizeof n, '\0');
  std::memcpy(bytes.data(), &n, sizeof n);
  return bytes;
}

std::uint64_t as_number(const std::string& bytes) {
  std::uint64_t n = 0;
  std::memcpy(&n, bytes.data(), std::min(bytes.size(), sizeof n));
  return n;
}

fate no_such_file(const std::string& path) {
  fate f;
  f.refused = base::error{errc::not_found, "cannot read '" + path + "': No such file", 0};
  return f;
}

bool is_passing(const backends::exec_spec& spec) {
  return spec.id.starts_with(backends::passing_file_prefix);
}

}  // namespace

bool sandbox::lives() const {
  const std::scoped_lock lock(mutex_);
  return !over();
}

bool sandbox::is_heard_by(const std::shared_ptr<const void>& owner) const {
  const std::scoped_lock lock(mutex_);
  return owner_ == owner;
}

void sandbox::attach(std::shared_ptr<const void> owner, backends::event_sink sink) {
  const std::scoped_lock lock(mutex_);
  owner_ = std::move(owner);
  sink_ = std::make_shared<const backends::event_sink>(std::move(sink));
}

void sandbox::detach(const std::shared_ptr<const void>& owner) {
  const std::scoped_lock lock(mutex_);
  if (owner_ == owner) sink_.reset();
}

/// What the log has of a command; its end only if somebody was told of it.
std::optional<backends::known_command> sandbox::known(const command& c) const {
  if (is_passing(c.spec)) return std::nullopt;
  backends::known_command k;
  k.id = c.spec.id;
  k.kind = c.spec.kind;
  k.argv = c.spec.argv;
  k.output_cap = c.spec.output_cap;
  if (!c.told) return k;
  if (const auto* failed = std::get_if<backends::command_failed>(&c.end)) k.end = *failed;
  if (const auto* exited = std::get_if<backends::command_exited>(&c.end)) {
    k.end = *exited;
    k.started = exited->started;
    if (k.kind == backends::exec_kind::write_file && exited->exit_code == 0)
      k.written_size = as_number(c.what.err);
  }
  return k;
}

backends::recovered sandbox::describe() {
  const std::scoped_lock lock(mutex_);
  backends::recovered r;
  r.alive = !over();
  if (gone_) {
    r.died_of = gone_->first;
    r.detail = gone_->second;
  } else if (stopped_) {
    r.detail = "it was stopped";
  }
  for (const auto& command_id : order_) {
    if (auto k = known(commands_.at(command_id))) r.commands.push_back(*std::move(k));
  }
  r.used_up.assign(used_up_.begin(), used_up_.end());
  return r;
}

void sandbox::tell_news() {
  if (host_.news_held()) return;
  news untold;
  std::shared_ptr<const backends::event_sink> sink;
  {
    const std::scoped_lock lock(mutex_);
    if (!sink_ || over()) return;
    sink = sink_;
    for (const auto& command_id : order_) {
      auto& c = commands_.at(command_id);
      if (c.told) continue;
      if (c.what.never_arrives) {
        const base::error why{errc::unavailable, "it never arrived", 0};
        c.end = backends::command_failed{command_id, why};
      }
      if (const auto* failed = std::get_if<backends::command_failed>(&c.end)) {
        untold.emplace_back(*failed);
      } else {
        untold.emplace_back(backends::command_started{command_id, c.started});
      }
      if (const auto* exited = std::get_if<backends::command_exited>(&c.end))
        untold.emplace_back(*exited);
      c.told = !std::holds_alternative<running>(c.end);
    }
  }
  for (const auto& event : untold) {
    if (const auto* e = std::get_if<backends::command_started>(&event)) sink->started(*e);
    if (const auto* e = std::get_if<backends::command_failed>(&event)) sink->failed(*e);
    if (const auto* e = std::get_if<backends::command_exited>(&event)) sink->exited(*e);
  }
}

fate sandbox::read_file(const backends::exec_spec& spec) const {
  const auto file = files_.find(spec.argv.at(0));
  if (file == files_.end()) return no_such_file(spec.argv.at(0));
  fate f;
  if (spec.offset < file->second.size()) f.out = file->second.substr(spec.offset, spec.length);
  f.err = as_bytes(file->second.size());
  return f;
}

fate sandbox::write_file(const backends::exec_spec& spec) {
  fate f = host_.behaviour().write ? host_.behaviour().write(spec) : fate{};
  if (f.refused || f.exit_code != 0) return f;
  auto& content = files_[spec.argv.at(0)];
  if (spec.offset == 0) content.clear();
  if (content.size() < spec.offset) content.resize(spec.offset);
  content.replace(spec.offset, spec.stdin_data.size(), spec.stdin_data);
  f.err = as_bytes(content.size());
  return f;
}

fate sandbox::decide(const backends::exec_spec& spec) {
  if (spec.kind == backends::exec_kind::read_file) return read_file(spec);
  if (spec.kind == backends::exec_kind::write_file) return write_file(spec);
  return host_.behaviour().run ? host_.behaviour().run(spec) : fate{};
}

base::result<void> sandbox::exec(backends::exec_spec spec) {
  DSEC_CHECK(host_.step("exec", id_));
  const auto command_id = spec.id;
  const auto timeout = spec.timeout;
  const auto at = std::chrono::system_clock::now();
  fate f;
  std::shared_ptr<const backends::event_sink> sink;
  {
    const std::scoped_lock lock(mutex_);
    if (over()) return base::fail(errc::unavailable, "instance is stopped");
    if (commands_.contains(command_id) || used_up_.contains(base::id_hash(command_id)))
      return base::fail(errc::already_exists, "command id is known");
    f = decide(spec);
    sink = sink_;
    std::string().swap(spec.stdin_data);
    command c{std::move(spec), f, at, running{}, false, false, {}};
    if (f.refused) {
      c.end = backends::command_failed{command_id, *f.refused};
      c.told = sink != nullptr;
    }
    commands_.emplace(command_id, std::move(c));
    order_.push_back(command_id);
  }
  if (f.never_arrives) return {};
  host_.note("exec " + id_ + " " + command_id);
  if (!sink) return {};
  if (f.refused) {
    sink->failed({command_id, *f.refused});
    return {};
  }
  sink->started({command_id, at});
  schedule(command_id, f, timeout);
  return {};
}

void sandbox::schedule(const std::string& command_id, const fate& f,
                       std::chrono::milliseconds timeout) {
  const bool times_out = timeout.count() > 0 && (f.held || f.after > timeout);
  if (f.held && (!times_out || !host_.behaviour().held_time_out)) return;
  if (!times_out && f.after.count() == 0) return end(command_id, f, false, false);
  host_.later(times_out ? timeout : f.after, [weak = weak_from_this(), command_id, f, times_out] {
    if (const auto self = weak.lock()) self->finish(command_id, f, times_out);
  });
}

void sandbox::finish(const std::string& command_id, const fate& f, bool timed_out) {
  end(command_id, f, timed_out, false);
}

void sandbox::end(const std::string& command_id, const fate& f, bool timed_out, bool killed) {
  backends::command_exited e;
  std::shared_ptr<const backends::event_sink> sink;
  {
    const std::scoped_lock lock(mutex_);
    const auto it = commands_.find(command_id);
    if (it == commands_.end() || !std::holds_alternative<running>(it->second.end) || over()) return;
    auto& c = it->second;
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
    c.end = e;
    sink = sink_;
    c.told = sink != nullptr;
  }
  if (sink) sink->exited(e);
}

base::result<void> sandbox::kill(const std::string& command_id) {
  DSEC_CHECK(host_.step("kill", id_));
  {
    const std::scoped_lock lock(mutex_);
    const auto it = commands_.find(command_id);
    if (it == commands_.end() || it->second.what.never_arrives)
      return base::fail(errc::not_found, "no command '" + command_id + "'");
  }
  host_.note("kill " + id_ + " " + command_id);
  end(command_id, {}, false, true);
  return {};
}

base::result<backends::output_piece> sandbox::read_output(const std::string& command_id,
                                                          backends::stream which,
                                                          std::uint64_t offset,
                                                          std::uint64_t length,
                                                          std::optional<std::uint64_t> total) {
  DSEC_CHECK(host_.step("read_output", id_));
  const std::scoped_lock lock(mutex_);
  const auto it = commands_.find(command_id);
  if (it == commands_.end() || it->second.forgotten)
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

base::result<void> sandbox::watch_output(const std::string& command_id, backends::stream which,
                                         std::function<void()> grown) {
  DSEC_CHECK(host_.step("watch_output", id_));
  const std::scoped_lock lock(mutex_);
  const auto it = commands_.find(command_id);
  if (it == commands_.end()) return base::fail(errc::not_found, "no command '" + command_id + "'");
  if (which == backends::stream::out) it->second.watchers.push_back(std::move(grown));
  return {};
}

void sandbox::write(const std::string& command_id, std::string_view text) {
  std::vector<std::function<void()>> told;
  {
    const std::scoped_lock lock(mutex_);
    const auto it = commands_.find(command_id);
    if (it == commands_.end()) return;
    it->second.what.out += text;
    told.swap(it->second.watchers);
  }
  for (const auto& grown : told) grown();
}

void sandbox::forget(const std::string& command_id) {
  host_.note("forget " + id_ + " " + command_id);
  const std::scoped_lock lock(mutex_);
  const auto it = commands_.find(command_id);
  if (it == commands_.end()) return;
  const auto* exited = std::get_if<backends::command_exited>(&it->second.end);
  const bool written = it->second.spec.kind == backends::exec_kind::write_file &&
                       exited != nullptr && exited->exit_code == 0 && !is_passing(it->second.spec);
  if (written) {
    it->second.forgotten = true;
    return;
  }
  if (!is_passing(it->second.spec)) used_up_.insert(base::id_hash(command_id));
  commands_.erase(it);
  std::erase(order_, command_id);
}

void sandbox::withdraw(const std::string& command_id) {
  host_.note("withdraw " + id_ + " " + command_id);
  const std::scoped_lock lock(mutex_);
  if (commands_.erase(command_id) > 0) std::erase(order_, command_id);
}

base::result<void> sandbox::stop() {
  {
    const std::scoped_lock lock(mutex_);
    if (stopped_) return {};
  }
  DSEC_CHECK(host_.step("stop", id_));  // an error: to be called again
  {
    const std::scoped_lock lock(mutex_);
    stopped_ = true;
  }
  host_.note("stop " + id_);
  return {};
}

void sandbox::fail(base::cause why, std::string detail) {
  std::shared_ptr<const backends::event_sink> sink;
  {
    const std::scoped_lock lock(mutex_);
    if (over()) return;
    gone_.emplace(why, detail);
    sink = sink_;
  }
  if (sink) sink->gone(why, std::move(detail));
}

}  // namespace dsec::fake

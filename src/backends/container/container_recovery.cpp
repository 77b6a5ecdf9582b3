// A sandbox of an earlier dsecd (container_instance.hpp): its commands from its log; alive, its
// parts from what the launcher holds, and aether asked what became of commands whose end is not
// written down; ended, only its files. Nothing here waits for anything inside.
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <deque>
#include <filesystem>

#include "backends/container/container_instance.hpp"
#include "base/failpoint.hpp"
#include "base/log.hpp"

namespace dsec::container {
namespace {

using base::errc;
using base::fail;
using base::result;

/// Until aether is asked of more commands than its channel took before.
constexpr std::chrono::milliseconds ask_again{20};

command_record to_record(const command_log::command& c) {
  return {c.known.kind, c.known.argv.empty() ? std::string() : c.known.argv[0],
          c.cwd,        c.user,
          c.spool_cap,  true};
}

bool is_pending(const backends::known_command& c) {
  return std::holds_alternative<backends::known_command::pending>(c.end);
}

std::string describe_status(int status) {
  if (status == -1) return "its aether has ended";
  return "its aether has ended with " + (WIFSIGNALED(status)
                                             ? "signal " + std::to_string(WTERMSIG(status))
                                             : "status " + std::to_string(WEXITSTATUS(status)));
}

void say_why_dead(backends::recovered& r, const std::optional<inheritance::standing>& standing) {
  r.died_of = standing ? base::cause::backend : base::cause::lost;
  r.detail = standing ? describe_status(standing->status) + " while no dsecd was there"
                      : "dsecd ended while it lived, and nothing of it runs any more";
}

/// What this process or the host is short of; nothing about the sandbox.
bool is_want(const base::error& e) {
  constexpr std::array all{EMFILE, ENFILE, ENOMEM, ENOBUFS, EAGAIN};
  return std::find(all.begin(), all.end(), e.sys_errno) != all.end();
}

/// Of those for which the channel has no room now it is asked a little later. A channel that is
/// closed is the sandbox's death, and is told as that.
void ask(const std::weak_ptr<sandbox_parts>& whose, std::deque<std::string> commands) {
  const auto parts = whose.lock();
  const auto channel = parts ? parts->open_channel() : nullptr;
  if (!channel) return;
  while (!commands.empty()) {
    const auto sent = channel->send(encode_id(guest::msg::query, commands.front()));
    if (!sent && sent.error().code == errc::sandbox_failed) return;
    if (!sent) break;
    commands.pop_front();
  }
  if (commands.empty()) return;
  parts->host.chores.post_later(
      ask_again, [whose, rest = std::move(commands)]() mutable { ask(whose, std::move(rest)); });
}

}  // namespace

result<backends::recovered> container_instance::recover(sandbox_host& host,
                                                        const backends::start_spec& spec,
                                                        backends::event_sink sink) {
  if (host.sandboxes.find(spec.sandbox_id))
    return fail(errc::already_exists, "sandbox '" + spec.sandbox_id + "' was taken over already");
  const auto standing = host.left.find(spec.sandbox_id);
  std::error_code unknown;
  const auto directory = host.paths.sandbox(spec.sandbox_id);
  if (!standing && !std::filesystem::exists(directory, unknown)) {
    if (unknown)
      return fail(
          base::from_errno("cannot look for '" + directory.string() + "'", unknown.value()));
    return fail(errc::not_found, "nothing is left of sandbox '" + spec.sandbox_id + "'");
  }
  std::unique_ptr<container_instance> made(new container_instance(host, spec, std::move(sink)));
  made->stopped_ = made->half_taken_ = true;  // until it is seen to live
  made->parts_->open_spool();
  backends::recovered r;
  DSEC_CHECK(made->find_out(r, standing && standing->alive));
  made->half_taken_ = false;
  made->stopped_ = !r.alive;
  if (!r.alive) say_why_dead(r, standing);
  r.instance = std::move(made);
  return r;
}

result<void> container_instance::find_out(backends::recovered& r, bool alive) {
  auto commands = read_log(r.used_up);
  if (!commands && is_want(commands.error())) return fail(commands.error());
  if (commands) {
    r.commands = *std::move(commands);
  } else {
    // Of one that has ended results are lost then, and nothing can run twice. In one that lives
    // nothing may be started, not by this process.
    base::log::error("command_log_unreadable", {{"sandbox", parts_->spec.sandbox_id},
                                                {"error", commands.error().to_string()}});
    sealed_ = alive;
    if (alive) r.sealed = commands.error();
  }
  if (!alive) return {};
  DSEC_TRY(r.alive, take_over());
  return r.alive && !sealed_ ? ask_for_ends(r.commands) : result<void>();
}

result<std::vector<backends::known_command>> container_instance::read_log(
    std::vector<std::uint64_t>& used_up) {
  DSEC_TRY(auto logged, parts_->log->load());
  std::vector<backends::known_command> known;
  for (auto& c : logged.commands) {
    if (!c.settled)
      DSEC_CHECK(is_pending(c.known) ? commands_.add_asked(c.known.id, to_record(c))
                                     : commands_.add_ended(c.known.id, to_record(c)));
    known.push_back(std::move(c.known));
  }
  used_up = std::move(logged.used_up);
  // File operations that nobody asks for any more, and what was forgotten only in part.
  const auto cleaned =
      parts_->spool->retain([&](const std::string& id) { return commands_.find(id).has_value(); });
  if (!cleaned && cleaned.error().code != errc::not_found)
    base::log::warn("spools_not_cleaned",
                    {{"sandbox", parts_->spec.sandbox_id}, {"error", cleaned.error().to_string()}});
  return known;
}

/// False: it has died a moment ago.
result<bool> container_instance::take_over() {
  DSEC_TRY(const bool taken, parts_->host.left.take(parts_->spec.sandbox_id,
                                                    [&](auto& held) { return adopt(held); }));
  if (!taken) return false;
  running_ = true;
  DSEC_CHECK(base::failpoint::check("container.recover.taken"));
  DSEC_CHECK(parts_->reconnect());
  DSEC_CHECK(base::failpoint::check("container.recover.connected"));
  return true;
}

result<void> container_instance::adopt(listed_sandbox& held) {
  auto& host = parts_->host;
  slot place;
  place.number = held.slot;
  place.generation = host.launcher.current().generation;
  DSEC_TRY(place.groups, host.groups.open_slot(std::to_string(held.slot)));
  place.groups.applied = parts_->spec.limits;
  DSEC_CHECK(host.sandboxes.add(parts_));
  host.layers.hold_inherited(parts_->spec.layers);
  parts_->take_over(std::move(place), std::move(held.pidfd), std::move(held.channel));
  return {};
}

/// Of what the earlier dsecd had not acknowledged aether speaks by itself, after the hello. All
/// other commands whose end is not in the log are asked for; those that still run it tells when
/// they end.
result<void> container_instance::ask_for_ends(
    const std::vector<backends::known_command>& commands) {
  const auto sent = parts_->open_channel()->resume();
  const bool dead = !sent && (sent.error().code == errc::sandbox_failed ||
                              sent.error().code == errc::unavailable);
  if (!sent) return dead ? result<void>() : sent;
  std::deque<std::string> pending;
  for (const auto& c : commands) {
    if (is_pending(c)) pending.push_back(c.id);
  }
  ask(parts_, std::move(pending));
  return {};
}

}  // namespace dsec::container

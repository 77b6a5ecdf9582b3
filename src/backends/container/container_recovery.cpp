// A sandbox of an earlier dsecd (container_instance.hpp): its commands from its log; alive, its
// parts from what the launcher holds, and aether asked what became of commands whose end is not
// written down; ended, only its files. Nothing here waits for anything inside.
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>

#include "backends/container/container_instance.hpp"
#include "base/failpoint.hpp"
#include "base/log.hpp"

namespace dsec::container {
namespace {

using base::errc;
using base::fail;
using base::result;

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

}  // namespace

result<backends::recovered> container_instance::recover(sandbox_host& host,
                                                        const backends::start_spec& spec,
                                                        backends::event_sink sink) {
  if (host.sandboxes.find(spec.sandbox_id))
    return fail(errc::already_exists, "sandbox '" + spec.sandbox_id + "' was taken over already");
  const auto standing = host.left.find(spec.sandbox_id);
  std::error_code ignored;
  if (!standing && !std::filesystem::exists(host.paths.sandbox(spec.sandbox_id), ignored))
    return fail(errc::not_found, "nothing is left of sandbox '" + spec.sandbox_id + "'");
  std::unique_ptr<container_instance> made(new container_instance(host, spec, std::move(sink)));
  made->stopped_ = true;  // until it is seen to live
  made->parts_->open_spool();
  backends::recovered r;
  DSEC_TRY(r.commands, made->read_log(r.used_up));
  if (standing && standing->alive) {
    DSEC_TRY(r.alive, made->take_over());
  }
  if (r.alive)
    DSEC_CHECK(made->ask_for_ends(r.commands));
  else
    say_why_dead(r, standing);
  r.instance = std::move(made);
  return r;
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
  stopped_ = false;
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
/// they end. A channel that is closed is the sandbox's death, and is told as that.
result<void> container_instance::ask_for_ends(
    const std::vector<backends::known_command>& commands) {
  const auto channel = parts_->open_channel();
  auto sent = channel->resume();
  for (const auto& c : commands) {
    if (sent && is_pending(c)) sent = channel->send(encode_id(guest::msg::query, c.id));
  }
  const bool dead = !sent && (sent.error().code == errc::sandbox_failed ||
                              sent.error().code == errc::unavailable);
  return dead ? result<void>() : sent;
}

}  // namespace dsec::container

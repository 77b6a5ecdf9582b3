// Commands of a sandbox: starting them, waiting for them, telling how they ended. Nothing here
// blocks: instance::exec and kill only send, and output is read on the copy pool unless it is small
// and just written.
#include <algorithm>
#include <utility>

#include "actors/exec_request.hpp"
#include "actors/output.hpp"
#include "actors/sandbox.hpp"
#include "actors/text_checks.hpp"
#include "base/log.hpp"
#include "base/text.hpp"

namespace dsec::actors {
namespace {

using base::errc;

// Output up to this size that a command wrote a moment ago stands in the page cache: reading it
// here costs less than the way to a pool and back.
constexpr std::uint64_t small_output = 64UL * 1024;

// Input up to this size is written into its memory file here; more takes long enough to hold up
// other actors.
constexpr std::size_t small_input = 64UL * 1024;

std::string joined(const std::vector<std::string>& argv) {
  std::string all;
  for (const auto& word : argv) all += (all.empty() ? "" : " ") + word;
  return all;
}

const char* how_it_ended(const backends::command_exited& e) {
  return e.timed_out ? "timeout" : e.oom_killed ? "oom" : e.killed ? "killed" : "exit";
}

std::uint64_t most_wanted(const command& c, std::uint32_t limit) {
  return std::max(std::min<std::uint64_t>(c.exit.stdout_total, limit),
                  std::min<std::uint64_t>(c.exit.stderr_total, limit));
}

}  // namespace

base::error sandbox_state::unknown_command(const std::string& command_id) const {
  if (book->commands.used_up(command_id)) {
    return {errc::not_found,
            "command '" + command_id + "' ended long ago; its result is no longer kept", 0};
  }
  return {errc::not_found, "sandbox '" + id() + "' knows no command '" + command_id + "'", 0};
}

caf::result<reply> sandbox_state::on_exec(const call& c, proto::Exec::Reader request) {
  auto parsed =
      parse_exec(request, book->record.spec, std::uint64_t{env->config.sandbox.spool_mb} << 20U);
  if (!parsed) return refusal(c, parsed.error());
  auto& spec = parsed->command;
  const auto command_id = spec.id;
  if (!waits.has_room()) return refusal(c, too_many_wait(command_waits::most, "commands"));
  if (book->commands.find(command_id) == nullptr) {
    if (book->commands.used_up(command_id)) return refusal(c, unknown_command(command_id));
    if (phase() != base::phase::running) return refusal(c, why_not_running(book->record));
    if (auto ok = book->commands.add(spec, c.trace); !ok) return refusal(c, ok.error());
    if (auto ok = hand_over(c, std::move(spec)); !ok) {
      book->commands.withdraw(command_id);
      return refusal(c, ok.error());
    }
    publish_use();
  }
  return join_command(command_id, {make_waiter(c), !parsed->wait, false, parsed->inline_limit});
}

base::result<void> sandbox_state::hand_over(const call& c, backends::exec_spec spec) {
  if (spec.stdin_data.size() <= small_input) return book->instance->exec(std::move(spec));
  // The request goes along: its bytes count as pending until they are where they belong.
  return env->copy_pool->submit([book = book, instance = book->instance, request = c.request,
                                 s = std::make_shared<backends::exec_spec>(std::move(spec))] {
    const auto command_id = s->id;
    if (auto ok = instance->exec(std::move(*s)); !ok)
      book->events.add(backends::command_failed{command_id, std::move(ok).error()});
  });
}

/// The answer comes when there is what `w` waits for, perhaps at once.
caf::result<reply> sandbox_state::join_command(const std::string& command_id, command_wait w) {
  auto promise = w.who.promise;
  waits.add(command_id, std::move(w));
  settle(command_id);
  return promise;
}

void sandbox_state::settle(const std::string& command_id) {
  const auto* c = book->commands.find(command_id);
  if (c == nullptr) return;
  for (auto& w : waits.ready(*c)) answer_command(w, *c);
}

void sandbox_state::answer_command(command_wait& w, const command& c) {
  if (c.now == command::state::refused || c.now == command::state::lost)
    return w.who.refuse(c.why, c.id);
  if (c.now != command::state::ended) return w.who.answer(command_reply(w.who.id, id(), c));
  const auto wanted = most_wanted(c, w.inline_limit);
  if (wanted == 0) return w.who.answer(command_reply(w.who.id, id(), c));
  auto make = [instance = book->instance, sandbox_id = id(), c, request = w.who.id,
               limit = w.inline_limit] {
    const auto output = read_kept_output(*instance, c, limit);
    return output ? command_reply(request, sandbox_id, c, *output)
                  : error_reply(request, output.error(), c.id);
  };
  const bool fresh = just_ended == c.id;
  if (fresh && wanted <= small_output) return w.who.answer(make());
  answer_from_pool(std::move(w.who), std::move(make));
}

void sandbox_state::tell_command(event_kind kind, const command& c) {
  constexpr std::size_t longest_words = 120;
  // Of a command that an earlier dsecd started the sandbox's is known at most.
  const auto& trace = c.trace.empty() ? book->trace : c.trace;
  event e{.kind = kind,
          .owner = book->record.owner,
          .sandbox_id = id(),
          .command_id = c.id,
          .trace = trace};
  if (kind == event_kind::command_started) e.detail = base::shown(joined(c.argv), longest_words);
  if (kind == event_kind::command_failed) {
    e.detail = c.why.message;
    e.cause = base::to_string(c.why.code);
  }
  if (kind == event_kind::command_ended) {
    e.exit_code = c.exit.exit_code;
    e.cause = how_it_ended(c.exit);
  }
  base::log::debug(to_string(kind), {{"sandbox", id()}, {"command", c.id}, {"trace", trace}});
  env->events->add(std::move(e));
}

void sandbox_state::apply(const backends::command_started& e) {
  if (!book->commands.started(e)) return;
  tell_command(event_kind::command_started, *book->commands.find(e.id));
  if (book->commands.find(e.id)->kill_wanted && book->instance)
    static_cast<void>(book->instance->kill(e.id));
  settle(e.id);
}

void sandbox_state::apply(const backends::command_failed& e) {
  if (file_failed(e)) return;
  if (!base::retryable(e.why.code)) return apply(command_forgotten{e});
  forget_then_tell(e);
}

/// It may succeed later, and the same request, sent again, is to start it: nobody is told before
/// its id is free. Forgetting deletes files, few here; and a client waits for it, so that it does
/// not go to the background.
void sandbox_state::forget_then_tell(const backends::command_failed& e) {
  if (!book->instance) return apply(command_forgotten{e});
  auto forget = [book = book, instance = book->instance, e] {
    instance->withdraw(e.id);
    book->events.add(command_forgotten{e});
  };
  if (!env->copy_pool->submit(std::move(forget))) apply(command_forgotten{e});
}

void sandbox_state::apply(const command_forgotten& e) {
  const auto& failed = e.failed;
  if (std::string_view(failed.id).starts_with(reserved_prefix)) {
    book->writes.withdraw(failed.id);
    return refuse_file(failed);
  }
  if (!book->commands.failed(failed)) return;
  tell_command(event_kind::command_failed, *book->commands.find(failed.id));
  after_end(failed.id);
  if (base::retryable(failed.why.code)) book->commands.withdraw(failed.id);
}

void sandbox_state::apply(const backends::command_exited& e) {
  if (file_exited(e)) return;
  if (!book->commands.exited(e)) return;
  tell_command(event_kind::command_ended, *book->commands.find(e.id));
  after_end(e.id);
}

void sandbox_state::after_end(const std::string& command_id) {
  publish_use();
  just_ended = command_id;
  settle(command_id);
  just_ended.clear();
  wake_for_output(command_id);
  auto evicted = book->commands.evict();
  if (evicted.empty()) return;
  const auto submitted =
      env->background_pool->submit([instance = book->instance, ids = std::move(evicted)] {
        for (const auto& evicted_id : ids) instance->forget(evicted_id);
      });
  if (!submitted)
    base::log::warn("spools_kept", {{"sandbox", id()}, {"why", submitted.error().message}});
}

caf::result<reply> sandbox_state::on_get_command(const call& c, proto::CommandRef::Reader request) {
  const auto asked_id = text(request.getCommandId(), "commandId");
  if (!asked_id) return refusal(c, asked_id.error());
  const auto& command_id = *asked_id;
  const auto* known = book->commands.find(command_id);
  if (known == nullptr) return refusal(c, unknown_command(command_id));
  const auto limit = inline_limit(request.getInlineLimit());
  const bool has_result = known->over() && known->now != command::state::lost;
  if (!has_result && request.getWaitMs() == 0) return reply(command_reply(c.id, id(), *known));
  if (!waits.has_room()) return refusal(c, too_many_wait(command_waits::most, "commands"));
  command_wait w{make_waiter(c), false, true, limit};
  w.who.deadline = std::min(w.who.deadline, now() + std::chrono::milliseconds(request.getWaitMs()));
  deadlines.want(self, w.who.deadline);
  return join_command(command_id, std::move(w));
}

caf::result<reply> sandbox_state::on_kill_command(const call& c,
                                                  proto::CommandRef::Reader request) {
  const auto asked_id = text(request.getCommandId(), "commandId");
  if (!asked_id) return refusal(c, asked_id.error());
  const auto& command_id = *asked_id;
  const auto* known = book->commands.find(command_id);
  if (known == nullptr) return refusal(c, unknown_command(command_id));
  if (!known->over() && book->instance) {
    auto ok = book->instance->kill(command_id);
    if (!ok && ok.error().code != errc::not_found) return refusal(c, ok.error());
    if (!ok) book->commands.want_kill(command_id);  // still on its way to the instance
  }
  // Who waits for too much can still end it, and in the end does not hear how it ended.
  if (!waits.has_room(2 * command_waits::most)) return reply(command_reply(c.id, id(), *known));
  return join_command(command_id,
                      {make_waiter(c), false, false, inline_limit(request.getInlineLimit())});
}

caf::result<reply> sandbox_state::on_list_commands(const call& c) {
  return reply(commands_reply(c.id, id(), book->commands.all()));
}

void sandbox_state::answer_late(command_wait& w, const std::string& command_id) {
  const auto* c = book->commands.find(command_id);
  if (w.state_when_late && c != nullptr) return answer_command(w, *c);
  w.who.refuse(
      {errc::deadline_exceeded, "command '" + command_id + "' goes on; ask for it by its id", 0},
      command_id);
}

void sandbox_state::expire_command_waits(time_point at) {
  for (auto& [command_id, w] : waits.late(at)) answer_late(w, command_id);
}

void sandbox_state::lose_commands() {
  for (const auto& command_id : book->commands.lose_all(why_not_running(book->record))) {
    settle(command_id);
    wake_for_output(command_id);
  }
  publish_use();
}

}  // namespace dsec::actors

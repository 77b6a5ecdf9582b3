// Output of commands, piece by piece, from their spools; read on the copy pool. With waitMs a
// request is answered when there is something at its offset: the spool is read, then watched and
// read once more, so that nothing can have come in between, then it waits for the watch. Where the
// host has no more watches it is read again every second.
#include <algorithm>
#include <caf/send.hpp>
#include <memory>
#include <optional>
#include <utility>

#include "actors/output.hpp"
#include "actors/replies.hpp"
#include "actors/sandbox.hpp"
#include "actors/text_checks.hpp"
#include "guest/spool.hpp"
#include "proto/limits.hpp"

namespace dsec::actors {
namespace {

constexpr std::chrono::seconds look_pause{1};

/// What a command has written, as far as it is known.
struct known_output {
  std::optional<std::uint64_t> total;  // it has ended
  std::uint64_t cap = 0;
  bool lost = false;  // its sandbox ended before it
};

known_output known_of(const command& c, backends::stream which) {
  known_output out;
  out.cap = c.output_cap;
  out.lost = c.now == command::state::lost;
  if (c.over() && !out.lost)
    out.total = which == backends::stream::err ? c.exit.stderr_total : c.exit.stdout_total;
  return out;
}

/// Nothing is promised for what waits, since nobody knows when it comes and how many at once: so
/// it is a small piece.
std::uint64_t longest_piece(proto::ReadOutput::Reader request) {
  const auto most =
      request.getWaitMs() == 0 ? proto::max_output_bytes : proto::max_waited_output_bytes;
  return std::min<std::uint64_t>(request.getLength(), most);
}

/// The answer where there is nothing to be read.
std::optional<proto::frame> empty_answer(std::uint64_t request, const known_output& known,
                                         std::uint64_t offset, bool has_spools) {
  if (!has_spools && !known.total) return lost_output_reply(request, offset);
  if (has_spools && !(known.total && offset >= *known.total)) return std::nullopt;
  return output_reply(request, {{}, offset}, known.total);
}

struct read_answer {
  proto::frame reply;
  bool nothing = false;  // yet: the command goes on
};

/// Blocks (copy pool).
read_answer read_range(backends::instance& instance, const output_range& of, std::uint64_t request,
                       const known_output& known) {
  const auto piece =
      known.lost
          ? read_lost_output(instance, of.command_id, of.which, known.cap, of.offset, of.length)
          : instance.read_output(of.command_id, of.which, of.offset, of.length, known.total);
  if (!piece) return {error_reply(request, piece.error(), of.command_id)};
  // How much a lost command has written is known where there is no more.
  if (known.lost && piece->data.empty()) return {lost_output_reply(request, piece->offset)};
  return {output_reply(request, *piece, known.total),
          !known.total && !known.lost && piece->data.empty()};
}

}  // namespace

caf::result<reply> sandbox_state::on_read_output(const call& c, proto::ReadOutput::Reader request) {
  auto command_id = text(request.getCommandId(), "commandId");
  if (!command_id) return refusal(c, command_id.error());
  if (request.getWaitMs() != 0 && !outputs.has_room())
    return refusal(c, too_many_wait(output_waits::most, "output"));
  output_wait w{
      make_waiter(c),
      {*std::move(command_id), request.getStderr() ? backends::stream::err : backends::stream::out,
       request.getOffset(), longest_piece(request)},
      0};
  // Without a wait its time is over once it was read for.
  w.who.deadline = std::min(w.who.deadline, now() + std::chrono::milliseconds(request.getWaitMs()));
  auto promise = w.who.promise;
  read_for(std::move(w));
  return promise;
}

void sandbox_state::read_for(output_wait w) {
  if (w.who.gone()) return w.who.abandon();
  const auto* command = book->commands.find(w.of.command_id);
  if (command == nullptr) return w.who.refuse(unknown_command(w.of.command_id), id());
  const auto known = known_of(*command, w.of.which);
  const auto request = w.who.id;
  if (auto empty = empty_answer(request, known, w.of.offset, book->instance != nullptr))
    return w.who.answer(*std::move(empty));
  const auto of = w.of;
  const auto token = outputs.reading(std::move(w));
  auto submitted = env->copy_pool->submit(
      [me = sandbox_self{self}, instance = book->instance, of, request, known, token] {
        auto read = read_range(*instance, of, request, known);
        caf::anon_send(me, output_read{token, reply(std::move(read.reply)), read.nothing});
      });
  if (submitted) return;
  if (auto back = outputs.take(token)) back->who.refuse(submitted.error(), id());
}

void sandbox_state::on_output_read(const output_read& m) {
  auto w = outputs.take(m.token);
  if (!w) return;
  const auto* command = book->commands.find(w->of.command_id);
  const bool may_wait = m.nothing && command != nullptr && w->who.deadline > now();
  if (!may_wait) return w->who.answer(m.answer.frame());
  if (command->over() || !book->instance) return read_for(*std::move(w));  // it ended meanwhile
  // Behind the first half nothing can be read while the command runs, however much it writes.
  const bool grows = w->of.offset < guest::spool_layout{command->output_cap}.half();
  const auto watch = outputs.watch(w->of);
  if (!grows || (watch != 0 && watch == w->watch)) {
    deadlines.want(self, w->who.deadline);
    return outputs.park(*std::move(w));
  }
  if (watch == 0) {
    if (auto ok = watch_output(w->of); !ok) return cannot_watch(*std::move(w), ok.error());
  }
  w->watch = outputs.watch(w->of);
  read_for(*std::move(w));
}

/// Watches are the host's, for all sandboxes: where there are no more it is looked at now and then.
void sandbox_state::cannot_watch(output_wait w, const base::error& why) {
  if (why.code != base::errc::capacity) return w.who.refuse(why, w.of.command_id);
  w.look_again = now() + look_pause;
  deadlines.want(self, std::min(*w.look_again, w.who.deadline));
  outputs.park(std::move(w));
}

base::result<void> sandbox_state::watch_output(const output_range& of) {
  DSEC_CHECK(book->instance->watch_output(
      of.command_id, of.which,
      [weak = std::weak_ptr(book), grown = output_grown{of.command_id, of.which}] {
        if (const auto still = weak.lock()) still->events.add(grown);
      }));
  outputs.watched(of);
  return {};
}

void sandbox_state::apply(const output_grown& e) {
  for (auto& w : outputs.grown(e.command_id, e.which)) read_for(std::move(w));
}

void sandbox_state::wake_for_output(const std::string& command_id) {
  for (auto& w : outputs.ended(command_id)) read_for(std::move(w));
}

void sandbox_state::expire_output_waits(time_point at) {
  for (auto& w : outputs.late(at)) w.who.answer(output_reply(w.who.id, {{}, w.of.offset}, {}));
  for (auto& w : outputs.to_look_at(at)) {
    w.look_again.reset();
    read_for(std::move(w));
  }
}

}  // namespace dsec::actors

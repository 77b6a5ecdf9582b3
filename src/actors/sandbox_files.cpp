// Output of commands, and files of a sandbox. A file operation is a command of the backend's own
// kind under an id of ours: it runs inside with the user's permissions, its bytes pass through a
// spool, and it is forgotten at once.
#include <algorithm>
#include <cstring>
#include <utility>

#include "actors/exec_request.hpp"
#include "actors/output.hpp"
#include "actors/sandbox.hpp"
#include "base/log.hpp"
#include "proto/limits.hpp"

namespace dsec::actors {
namespace {

using base::errc;
using base::fail;

std::string attempt(const backends::exec_spec& spec) {
  const bool reads = spec.kind == backends::exec_kind::read_file;
  return std::string(reads ? "cannot read '" : "cannot write '") + spec.argv.at(0) + "'";
}

base::error too_late(const backends::exec_spec& spec) {
  return {errc::deadline_exceeded, attempt(spec) + " in time", 0};
}

/// Why a helper that had opened the file did not succeed all the same.
base::error about_exit(const backends::exec_spec& spec, const backends::command_exited& e) {
  if (e.timed_out) return too_late(spec);
  if (e.signal != 0) return {errc::cancelled, attempt(spec) + ": interrupted", 0};
  // The helper's exit status is the errno of the call that failed.
  return base::from_errno(attempt(spec), e.exit_code);
}

/// The size of the file, which the helper reports as 8 bytes on its standard error.
base::result<std::uint64_t> read_size(backends::instance& instance,
                                      const backends::command_exited& e) {
  DSEC_TRY(const auto bytes, read_stream(instance, e.id, backends::stream::err, e.stderr_total, 8));
  std::uint64_t size = 0;
  if (bytes.size() != sizeof size)
    return fail(errc::internal, "a file helper did not report the file's size");
  std::memcpy(&size, bytes.data(), sizeof size);
  return size;
}

base::result<proto::frame> make_file_answer(std::uint64_t request, backends::instance& instance,
                                            const backends::exec_spec& spec,
                                            const backends::command_exited& e) {
  DSEC_TRY(const auto size, read_size(instance, e));
  if (spec.kind == backends::exec_kind::write_file) return file_written_reply(request, size);
  DSEC_TRY(const auto data,
           read_stream(instance, e.id, backends::stream::out, e.stdout_total, spec.length));
  return file_data_reply(request, data, spec.offset, size);
}

}  // namespace

caf::result<reply> sandbox_state::on_read_output(const call& c, proto::ReadOutput::Reader request) {
  const std::string command_id = request.getCommandId();
  const auto* known = book->commands.find(command_id);
  if (known == nullptr) return refusal(c, unknown_command(command_id));
  const auto which = request.getStderr() ? backends::stream::err : backends::stream::out;
  const bool lost = known->now == command::state::lost;
  std::optional<std::uint64_t> total;
  if (known->over() && !lost)
    total = request.getStderr() ? known->exit.stderr_total : known->exit.stdout_total;
  const auto offset = request.getOffset();
  if (!book->instance || (total && offset >= *total))
    return reply(output_reply(c.id, {{}, offset}, lost ? offset : total));
  const auto length = std::min<std::uint64_t>(request.getLength(), proto::max_data_bytes);
  auto waiter = make_waiter(c);
  auto promise = waiter.promise;
  answer_from_pool(std::move(waiter), [=, instance = book->instance, request_id = c.id,
                                       cap = known->output_cap] {
    if (lost) {
      const auto piece = read_lost_output(*instance, command_id, which, cap, offset, length);
      if (!piece) return error_reply(request_id, piece.error(), command_id);
      // How much it wrote is known where there is no more.
      return output_reply(request_id, *piece,
                          piece->data.empty() ? std::optional(piece->offset) : std::nullopt);
    }
    const auto piece = instance->read_output(command_id, which, offset, length, total);
    return piece ? output_reply(request_id, *piece, total)
                 : error_reply(request_id, piece.error(), command_id);
  });
  return promise;
}

caf::result<reply> sandbox_state::on_read_file(const call& c, proto::ReadFile::Reader request) {
  return begin_file_operation(c, parse_read_file(request, book->record.spec, next_file_id()));
}

caf::result<reply> sandbox_state::on_write_file(const call& c, proto::WriteFile::Reader request) {
  return begin_file_operation(c, parse_write_file(request, book->record.spec, next_file_id()));
}

std::string sandbox_state::next_file_id() {
  return std::string(reserved_prefix) + "file" + std::to_string(++book->file_operations);
}

caf::result<reply> sandbox_state::begin_file_operation(const call& c,
                                                       base::result<backends::exec_spec> spec) {
  if (!spec) return refusal(c, spec.error());
  if (phase() != base::phase::running) return refusal(c, why_not_running());
  // Nobody waits for it after the deadline, so it does not go on either.
  spec->timeout = std::max(std::chrono::ceil<std::chrono::milliseconds>(c.deadline - now()),
                           std::chrono::milliseconds(1));
  file_operation operation{{}, *spec};
  operation.spec.stdin_data.clear();
  const auto command_id = spec->id;
  if (auto ok = book->instance->exec(std::move(*spec)); !ok) return refusal(c, ok.error());
  operation.who = make_waiter(c);
  auto promise = operation.who.promise;
  file_operations.emplace(command_id, std::move(operation));
  publish_use();
  return promise;
}

bool sandbox_state::file_failed(const backends::command_failed& e) {
  if (!std::string_view(e.id).starts_with(reserved_prefix)) return false;
  auto found = file_operations.extract(e.id);
  if (found) found.mapped().who.refuse(e.why, id());
  publish_use();
  forget_file(e.id);
  return true;
}

bool sandbox_state::file_exited(const backends::command_exited& e) {
  if (!std::string_view(e.id).starts_with(reserved_prefix)) return false;
  auto found = file_operations.extract(e.id);
  publish_use();
  if (!found || e.exit_code != 0) {
    if (found) found.mapped().who.refuse(about_exit(found.mapped().spec, e), id());
    forget_file(e.id);
    return true;
  }
  auto& [who, spec] = found.mapped();
  answer_from_pool(std::move(who),
                   [instance = book->instance, spec = std::move(spec), e, request = who.id] {
                     auto made = make_file_answer(request, *instance, spec, e);
                     instance->forget(e.id);
                     return made ? *made : error_reply(request, made.error(), spec.argv.at(0));
                   });
  return true;
}

void sandbox_state::forget_file(const std::string& command_id) {
  if (!book->instance) return;
  const auto submitted = env->background_pool->submit(
      [instance = book->instance, command_id] { instance->forget(command_id); });
  if (!submitted)
    base::log::warn("spools_kept", {{"sandbox", id()}, {"why", submitted.error().message}});
}

void sandbox_state::expire_file_operations(time_point at) {
  for (auto& [command_id, operation] : file_operations) {
    if (operation.who.deadline > at || !operation.who.promise.pending()) continue;
    operation.who.refuse(too_late(operation.spec), id());
    operation.who.deadline = time_point::max();
  }
}

void sandbox_state::fail_file_operations(const base::error& why) {
  for (auto& [command_id, operation] : std::exchange(file_operations, {}))
    operation.who.refuse(why, id());
  publish_use();
}

}  // namespace dsec::actors

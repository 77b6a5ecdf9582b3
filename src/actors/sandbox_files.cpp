// Files of a sandbox. A file operation is a command of the backend's own kind under an id of ours:
// it runs inside with the user's permissions, its bytes pass through a spool, and it is forgotten
// at once.
#include <algorithm>
#include <utility>

#include "actors/exec_request.hpp"
#include "actors/file_outcome.hpp"
#include "actors/output.hpp"
#include "actors/sandbox.hpp"
#include "actors/text_checks.hpp"
#include "base/ids.hpp"
#include "base/log.hpp"
#include "proto/limits.hpp"

namespace dsec::actors {
namespace {

using base::errc;

base::error too_late(const backends::exec_spec& spec) {
  return {errc::deadline_exceeded, attempt(spec.kind, spec.argv.at(0)) + " in time", 0};
}

base::result<proto::frame> make_file_answer(std::uint64_t request, backends::instance& instance,
                                            const backends::exec_spec& spec,
                                            const backends::command_exited& e) {
  DSEC_TRY(const auto data,
           read_stream(instance, e.id, backends::stream::out, e.stdout_total, spec.length));
  if (const auto all = std::min<std::uint64_t>(e.stdout_total, spec.length); data.size() < all)
    return base::fail(disk_took_less(data.size(), all));
  DSEC_TRY(const auto size, size_after(instance, e));
  return file_data_reply(request, data, spec.offset, size);
}

}  // namespace

caf::result<reply> sandbox_state::on_read_file(const call& c, proto::ReadFile::Reader request) {
  return begin_file_operation(c, parse_read_file(request, book->record.spec, next_file_id()));
}

caf::result<reply> sandbox_state::on_write_file(const call& c, proto::WriteFile::Reader request) {
  const std::string operation(request.getOperationId().begin(), request.getOperationId().size());
  if (operation.empty())
    return begin_file_operation(c, parse_write_file(request, book->record.spec, next_file_id()));
  if (operation.size() > 48 || !base::is_valid_command_id(operation))
    return refusal(c,
                   {errc::invalid_argument, "operationId must be 1 to 48 of A-Z a-z 0-9 . _ -", 0});
  const auto command_id = std::string(write_prefix) + operation;
  if (book->writes.find(command_id) != nullptr) return join_write(c, command_id);
  if (book->commands.used_up(command_id)) {
    return refusal(c,
                   {errc::not_found,
                    "write '" + operation + "' ended long ago; its outcome is no longer kept", 0});
  }
  return begin_file_operation(c, parse_write_file(request, book->record.spec, command_id));
}

/// It was sent again: the first one's fate is the answer.
caf::result<reply> sandbox_state::join_write(const call& c, const std::string& command_id) {
  const auto& write = *book->writes.find(command_id);
  if (write.outcome) {
    if (!*write.outcome) return refusal(c, write.outcome->error());
    return reply(file_written_reply(c.id, **write.outcome));
  }
  if (phase() != base::phase::running) return refusal(c, why_not_running(book->record));
  auto& operation = file_operations[command_id];
  operation.spec.kind = backends::exec_kind::write_file;
  operation.spec.argv = {write.path};
  operation.who.push_back(make_waiter(c));
  return operation.who.back().promise;
}

std::string sandbox_state::next_file_id() {
  return std::string(backends::passing_file_prefix) + env->epoch + "." +
         std::to_string(++book->file_operations);
}

caf::result<reply> sandbox_state::begin_file_operation(const call& c,
                                                       base::result<backends::exec_spec> spec) {
  if (!spec) return refusal(c, spec.error());
  if (phase() != base::phase::running) return refusal(c, why_not_running(book->record));
  // Nobody waits for it after the deadline, so it does not go on either.
  spec->timeout = std::max(std::chrono::ceil<std::chrono::milliseconds>(c.deadline - now()),
                           std::chrono::milliseconds(1));
  file_operation operation{{}, *spec};
  std::string().swap(operation.spec.stdin_data);
  const auto command_id = spec->id;
  if (auto ok = hand_over(c, std::move(*spec)); !ok) return refusal(c, ok.error());
  if (command_id.starts_with(write_prefix)) {
    if (const auto old = book->writes.begin(command_id, operation.spec.argv.at(0)))
      forget_file(*old);
  }
  operation.who.push_back(make_waiter(c));
  auto promise = operation.who.back().promise;
  file_operations.emplace(command_id, std::move(operation));
  publish_use();
  return promise;
}

bool sandbox_state::file_failed(const backends::command_failed& e) {
  if (!std::string_view(e.id).starts_with(reserved_prefix)) return false;
  if (book->writes.has_ended(e.id)) return true;  // told again after a restart
  if (base::retryable(e.why.code)) return false;  // told when its id is free again
  book->writes.end(e.id, base::fail(e.why));
  refuse_file(e);
  if (!book->writes.has_ended(e.id)) forget_file(e.id);
  return true;
}

void sandbox_state::refuse_file(const backends::command_failed& e) {
  auto found = file_operations.extract(e.id);
  if (found) {
    for (auto& w : found.mapped().who) w.refuse(e.why, id());
  }
  publish_use();
}

bool sandbox_state::file_exited(const backends::command_exited& e) {
  if (!std::string_view(e.id).starts_with(reserved_prefix)) return false;
  if (book->writes.has_ended(e.id)) return true;  // told again after a restart
  auto found = file_operations.extract(e.id);
  publish_use();
  const bool write = book->writes.find(e.id) != nullptr ||
                     (found && found.mapped().spec.kind == backends::exec_kind::write_file);
  if (write) {
    write_exited(e, found ? std::move(found.mapped()) : file_operation{});
    return true;
  }
  if (!found || e.exit_code != 0) {
    if (found) {
      const auto& spec = found.mapped().spec;
      const auto why = about_exit(spec.kind, spec.argv.at(0), e);
      for (auto& w : found.mapped().who) w.refuse(why, id());
    }
    forget_file(e.id);
    return true;
  }
  auto& [who, spec] = found.mapped();
  for (auto& w : who) {
    const auto request = w.id;
    answer_from_pool(std::move(w), [instance = book->instance, spec, e, request] {
      auto made = make_file_answer(request, *instance, spec, e);
      instance->forget(e.id);
      if (made) return *made;
      auto why = std::move(made).error();
      why.message = attempt(spec.kind, spec.argv.at(0)) + ": " + why.message;
      return error_reply(request, why, spec.argv.at(0));
    });
  }
  if (who.empty()) forget_file(e.id);
  return true;
}

/// The size is 8 bytes that were written a moment ago: read here, as small output is.
void sandbox_state::write_exited(const backends::command_exited& e, file_operation operation) {
  if (const auto* known = book->writes.find(e.id)) {
    operation.spec.kind = backends::exec_kind::write_file;
    operation.spec.argv = {known->path};
  }
  auto outcome = outcome_of_write(*book->instance, operation.spec.argv.at(0), e);
  if (!outcome && base::retryable(outcome.error().code)) {
    file_operations.insert_or_assign(e.id, std::move(operation));
    return forget_then_tell({e.id, std::move(outcome).error()});
  }
  book->writes.end(e.id, outcome);
  for (auto& w : operation.who) {
    outcome ? w.answer(file_written_reply(w.id, *outcome)) : w.refuse(outcome.error(), id());
  }
  if (outcome || !book->writes.has_ended(e.id)) forget_file(e.id);
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
    const auto late = [&](const waiter& w) { return w.deadline <= at; };
    for (auto& w : operation.who) {
      if (late(w)) w.refuse(too_late(operation.spec), id());
    }
    std::erase_if(operation.who, late);
  }
}

void sandbox_state::fail_file_operations(const base::error& why) {
  for (auto& [command_id, operation] : std::exchange(file_operations, {})) {
    for (auto& w : operation.who) w.refuse(why, id());
  }
  publish_use();
}

}  // namespace dsec::actors

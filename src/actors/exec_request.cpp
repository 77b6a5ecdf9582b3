#include "actors/exec_request.hpp"

#include <algorithm>

#include "actors/text_checks.hpp"
#include "base/ids.hpp"
#include "proto/limits.hpp"

namespace dsec::actors {
namespace {

using base::errc;
using base::fail;

constexpr const char* default_path =
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
constexpr std::uint64_t least_output_cap = 4096;
constexpr std::uint64_t most_output_cap = 1ULL << 30U;
// One argument, as execve(2) bounds it; arguments that together are too long are the kernel's to
// refuse.
constexpr std::size_t max_argument = 128 * 1024 - 1;

/// A spool is kept as two halves: the cap must be even and not tiny.
std::uint64_t output_cap(std::uint64_t asked, std::uint64_t fallback) {
  const auto cap = std::clamp(asked == 0 ? fallback : asked, least_output_cap, most_output_cap);
  return cap + cap % 2;
}

base::result<void> read_argv(proto::Exec::Reader request, backends::exec_spec& out) {
  if (request.getArgv().size() > proto::max_argv) {
    return fail(errc::invalid_argument,
                "argv has more than " + std::to_string(proto::max_argv) + " elements");
  }
  for (const auto argument : request.getArgv()) {
    DSEC_TRY(auto value, text(argument, "argv", max_argument));
    out.argv.push_back(std::move(value));
  }
  return {};
}

/// What `docker run IMAGE ARGUMENT…` runs: the entrypoint, then the arguments, or the image's own
/// where there are none.
base::result<void> read_with_entrypoint(proto::Exec::Reader request, const sandbox_spec& spec,
                                        backends::exec_spec& out) {
  if (request.getShell().size() > 0)
    return fail(errc::invalid_argument, "use_entrypoint goes with argv, not with shell");
  if (spec.entrypoint.empty()) {
    return fail(errc::invalid_argument, "use_entrypoint: image '" + spec.image +
                                            "' has no Entrypoint; give the whole argv");
  }
  out.argv = spec.entrypoint;
  if (request.getArgv().size() > 0) return read_argv(request, out);
  out.argv.insert(out.argv.end(), spec.cmd.begin(), spec.cmd.end());
  return {};
}

base::result<void> read_program(proto::Exec::Reader request, const sandbox_spec& spec,
                                backends::exec_spec& out) {
  const bool shell = request.getShell().size() > 0;
  if (request.getUseEntrypoint()) {
    DSEC_CHECK(read_with_entrypoint(request, spec, out));
  } else if (shell == (request.getArgv().size() > 0)) {
    return fail(errc::invalid_argument, "exec needs exactly one of argv and shell");
  } else if (shell) {
    out.kind = backends::exec_kind::shell;
    DSEC_TRY(auto script, text(request.getShell(), "shell", max_argument));
    out.argv.push_back(std::move(script));
    return {};
  } else {
    DSEC_CHECK(read_argv(request, out));
  }
  if (out.argv.front().empty()) return fail(errc::invalid_argument, "argv[0] is empty");
  return {};
}

base::result<std::string> user_of(capnp::Text::Reader asked, const sandbox_spec& spec) {
  DSEC_TRY(auto user, text(asked, "user", 256));
  return user.empty() ? spec.user : user;
}

base::result<std::string> data_of(capnp::Data::Reader data, std::string_view field) {
  if (data.size() > proto::max_data_bytes) {
    return fail(errc::too_large, std::string(field) + " of " + std::to_string(data.size()) +
                                     " bytes is over the limit of " +
                                     std::to_string(proto::max_data_bytes));
  }
  return std::string(reinterpret_cast<const char*>(data.begin()), data.size());
}

/// The path of a file operation, and whose permissions count.
base::result<void> read_file_target(capnp::Text::Reader path, capnp::Text::Reader user,
                                    const sandbox_spec& spec, backends::exec_spec& out) {
  DSEC_TRY(auto absolute, absolute_path(path, "path"));
  if (absolute.empty()) return fail(errc::invalid_argument, "path is empty");
  out.argv.push_back(std::move(absolute));
  DSEC_TRY(out.user, user_of(user, spec));
  return {};
}

}  // namespace

std::uint32_t inline_limit(std::uint32_t asked) {
  constexpr auto most = static_cast<std::uint32_t>(proto::max_data_bytes / 2);
  return std::min(asked == 0 ? proto::default_inline_bytes : asked, most);
}

base::result<exec_request> parse_exec(proto::Exec::Reader request, const sandbox_spec& spec,
                                      std::uint64_t default_output_cap) {
  exec_request out;
  out.command.id.assign(request.getCommandId().begin(), request.getCommandId().size());
  if (!base::is_valid_command_id(out.command.id) || out.command.id.starts_with(reserved_prefix)) {
    return fail(errc::invalid_argument,
                "command id must be 1 to 64 of A-Z a-z 0-9 . _ - and not begin with 'dsec.'");
  }
  DSEC_CHECK(read_program(request, spec, out.command));
  DSEC_TRY(out.command.user, user_of(request.getUser(), spec));
  DSEC_TRY(out.command.cwd, absolute_path(request.getCwd(), "cwd"));
  if (out.command.cwd.empty()) out.command.cwd = spec.workdir;
  DSEC_TRY(const auto own, environment(request.getEnv(), "env"));
  out.command.env = overlay({default_path}, spec.env);
  out.command.env = overlay(std::move(out.command.env), own);
  DSEC_TRY(out.command.stdin_data, data_of(request.getStdin(), "stdin"));
  // A limit of 300 years is none; milliseconds are signed.
  constexpr std::uint64_t longest = 10'000'000'000'000;
  out.command.timeout = std::chrono::milliseconds(std::min(request.getTimeoutMs(), longest));
  out.command.output_cap = output_cap(request.getOutputLimit(), default_output_cap);
  out.wait = request.getWait();
  out.inline_limit = inline_limit(request.getInlineLimit());
  return out;
}

base::result<backends::exec_spec> parse_read_file(proto::ReadFile::Reader request,
                                                  const sandbox_spec& spec, std::string id) {
  backends::exec_spec out;
  out.id = std::move(id);
  out.kind = backends::exec_kind::read_file;
  DSEC_CHECK(read_file_target(request.getPath(), request.getUser(), spec, out));
  out.offset = request.getOffset();
  const std::uint64_t most = proto::max_data_bytes;
  out.length = request.getLength() == 0 ? most : std::min<std::uint64_t>(request.getLength(), most);
  out.output_cap = output_cap(out.length, 0);
  return out;
}

base::result<backends::exec_spec> parse_write_file(proto::WriteFile::Reader request,
                                                   const sandbox_spec& spec, std::string id) {
  backends::exec_spec out;
  out.id = std::move(id);
  out.kind = backends::exec_kind::write_file;
  DSEC_CHECK(read_file_target(request.getPath(), request.getUser(), spec, out));
  DSEC_TRY(out.stdin_data, data_of(request.getData(), "data"));
  out.offset = request.getOffset();
  out.length = out.stdin_data.size();
  out.output_cap = least_output_cap;
  if ((request.getMode() & ~07777U) != 0) {
    return fail(errc::invalid_argument, "mode has more than permission bits");
  }
  out.mode = request.getMode() == 0 ? 0644 : request.getMode();
  return out;
}

}  // namespace dsec::actors

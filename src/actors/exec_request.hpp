// Exec, ReadFile and WriteFile -> what the backend is told to run. Pure, any thread; what is wrong
// is errc::invalid_argument (too_large for data) naming the field.
//
// Environment of a command, each over the one before: PATH of /usr/local/sbin and so on, the
// image's, the sandbox's, the command's own. Where none of them sets HOME, aether does, inside,
// from the image's /etc/passwd: /root for root, / for a user that is not in it.
#pragma once

#include <cstdint>
#include <string>

#include "actors/record.hpp"
#include "backends/backend.hpp"
#include "base/result.hpp"
#include "proto/client.capnp.h"

namespace dsec::actors {

/// Command ids with this prefix are the worker's own (file operations); clients may not use it.
inline constexpr std::string_view reserved_prefix = "dsec.";

struct exec_request {
  backends::exec_spec command;
  bool wait = false;
  std::uint32_t inline_limit = 0;  // bytes per stream, resolved
};

base::result<exec_request> parse_exec(proto::Exec::Reader request, const sandbox_spec& spec,
                                      std::uint64_t default_output_cap);

/// `id` is the generated command id. A length of 0 or beyond what fits in a message becomes what
/// fits.
base::result<backends::exec_spec> parse_read_file(proto::ReadFile::Reader request,
                                                  const sandbox_spec& spec, std::string id);
base::result<backends::exec_spec> parse_write_file(proto::WriteFile::Reader request,
                                                   const sandbox_spec& spec, std::string id);

/// Bytes per stream that come inline when a request says `asked`: two streams share one message.
std::uint32_t inline_limit(std::uint32_t asked);

}  // namespace dsec::actors

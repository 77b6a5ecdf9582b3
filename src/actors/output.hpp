// Reading a command's output from its spool. Blocking (files); on the copy pool, or for small fresh
// output.
#pragma once

#include <cstdint>
#include <string>

#include "actors/command_table.hpp"
#include "actors/replies.hpp"
#include "backends/backend.hpp"
#include "base/result.hpp"

namespace dsec::actors {

/// At most `limit` bytes of a finished stream from its beginning. Where bytes were dropped from the
/// middle the kept parts follow one another.
base::result<std::string> read_stream(backends::instance& instance, const std::string& command_id,
                                      backends::stream which, std::uint64_t total,
                                      std::uint64_t limit);

/// A piece of what a command wrote whose sandbox ended before it: how much that was nobody has
/// said. All of it while it did not fill its spool of `cap` bytes, else the half that stands still.
base::result<backends::output_piece> read_lost_output(backends::instance& instance,
                                                      const std::string& command_id,
                                                      backends::stream which, std::uint64_t cap,
                                                      std::uint64_t offset, std::uint64_t length);

/// Both streams of an ended command.
base::result<command_output> read_kept_output(backends::instance& instance, const command& c,
                                              std::uint64_t limit);

}  // namespace dsec::actors

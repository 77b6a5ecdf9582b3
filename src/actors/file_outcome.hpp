// How a file operation ended, from what its helper in the sandbox left: exit status, and the size
// of the file on its standard error. Reads a spool of 8 bytes; else pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "backends/backend.hpp"
#include "base/result.hpp"

namespace dsec::actors {

/// Command ids of writes that carry an id of their client's. (Others begin with
/// backends::passing_file_prefix.)
inline constexpr std::string_view write_prefix = "dsec.w.";

/// "cannot read '/path'"
std::string attempt(backends::exec_kind kind, const std::string& path);

/// Why a helper that had opened the file did not succeed all the same.
base::error about_exit(backends::exec_kind kind, const std::string& path,
                       const backends::command_exited& e);

/// What a helper said or read could not be stored on the way.
base::error disk_took_less(std::uint64_t kept, std::uint64_t total);

/// The size of the file.
base::result<std::uint64_t> size_after(backends::instance& instance,
                                       const backends::command_exited& e);

/// Of a write: the size of the file, or what it failed with.
base::result<std::uint64_t> outcome_of_write(backends::instance& instance, const std::string& path,
                                             const backends::command_exited& e);

}  // namespace dsec::actors

// Small helpers over files that this part owns: bounded reads, writes that survive a power cut,
// digests. Blocking; any thread. Errors name the file.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace dsec::fs {

base::result<std::string> sha256_of_file(const std::filesystem::path& file);

/// 64 lower-case hex digits.
bool is_digest(std::string_view text);

/// Everything that `fd` holds; errc::too_large beyond `limit` bytes. `name` is for messages.
base::result<std::string> read_all(int fd, std::size_t limit, const std::filesystem::path& name);
base::result<std::string> read_file(const std::filesystem::path& file, std::size_t limit);

/// mkdir -p with mode 0700 for whatever is missing.
base::result<void> make_private_directories(const std::filesystem::path& directory);

/// fsync(2) of a file or directory.
base::result<void> sync_path(const std::filesystem::path& path);

/// Class power: `bytes` into `scratch` (same file system, overwritten), fsync, rename to `target`,
/// fsync of its directory. After a crash `target` is the old or the new file, whole.
base::result<void> write_file_power(const std::filesystem::path& target,
                                    const std::filesystem::path& scratch, std::string_view bytes);

/// Class power: renames a finished file to `target`, with its data and mode on disk before its name
/// is.
base::result<void> move_file_power(const std::filesystem::path& from,
                                   const std::filesystem::path& target, mode_t mode);

/// rm -rf of a tree of ours: follows no link, stays on one file system, goes on after errors and
/// returns the first.
base::result<void> remove_tree(const std::filesystem::path& root);

/// flock(2) on a file that is made if missing; released when the object goes.
/// errc::deadline_exceeded after `wait_seconds` (names the file). `waited` is set when somebody
/// else held it.
base::result<base::unique_fd> lock_file(const std::filesystem::path& file, int wait_seconds,
                                        bool* waited = nullptr);

}  // namespace dsec::fs

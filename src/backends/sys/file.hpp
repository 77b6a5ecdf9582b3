// Small files, directories and memory files by descriptor. Blocking (local file systems only), any
// thread. Every function fails with the errno of the call that failed and names the object.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/sys/unique_fd.hpp"
#include "base/result.hpp"

namespace dsec::sys {

/// openat(2) with O_CLOEXEC; `directory` may be AT_FDCWD.
base::result<unique_fd> open_at(int directory, const std::string& name, int flags, mode_t mode = 0);
base::result<unique_fd> open_directory(const std::filesystem::path& path);

base::result<std::string> read_all(int fd, std::string_view name);
base::result<std::string> read_file_at(int directory, const std::string& name);
base::result<std::string> read_file(const std::filesystem::path& path);

/// One write(2) of the whole text to an existing file: how cgroup and proc files want it.
base::result<void> write_file_at(int directory, const std::string& name, std::string_view text);

/// mkdirat(2); an existing directory is fine.
base::result<void> make_directory_at(int directory, const std::string& name, mode_t mode);

/// Names in a directory without "." and "..".
base::result<std::vector<std::string>> list_directory(int directory);

inline constexpr std::string_view removal_prefix = ".rm-";

/// Removes the directory `name` below `directory` with all it holds, however deep and with whatever
/// names: every non-empty subdirectory is first moved up beside it, so neither stack nor
/// descriptors nor path lengths grow. Of a process that is killed meanwhile these remain, under
/// names that begin with removal_prefix.
base::result<void> remove_tree_at(int directory, const std::string& name);

/// A sealed (never again writable or resizable) memory file, opened read-only at its start.
base::result<unique_fd> sealed_memfd(const char* name, std::span<const std::byte> bytes,
                                     mode_t mode = 0400);

}  // namespace dsec::sys

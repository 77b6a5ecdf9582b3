// The spool directory of one sandbox: two files per command, written by aether at explicit offsets
// (guest/spool.hpp says where a byte stands), read here. A few empty files are kept ready under
// names that no command has. Any thread; local disk only.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "backends/backend.hpp"
#include "backends/sys/unique_fd.hpp"
#include "base/result.hpp"

namespace dsec::container {

/// What guest::spool_layout needs: even and at least one page.
std::uint64_t valid_spool_cap(std::uint64_t wanted);

class spool_dir {
 public:
  /// Over a directory that exists.
  explicit spool_dir(std::filesystem::path path) : path_(std::move(path)) {}

  /// Ready files for commands now and then, and for many in a row: two commands' worth, six
  /// commands' worth. The first is what most sandboxes see, and files cost.
  static constexpr unsigned ready_at_first = 4, ready_in_use = 12;

  /// Makes the ready files that are missing, so that the next create() allocates no inode.
  [[nodiscard]] base::result<void> prepare(unsigned files = ready_at_first) const;

  /// Write ends of a new command's stdout and stderr. errc::already_exists for an id that has them
  /// already.
  [[nodiscard]] base::result<std::pair<sys::unique_fd, sys::unique_fd>> create(
      const std::string& command) const;

  /// See instance::read_output. `cap` is the one the command was started with.
  [[nodiscard]] base::result<backends::output_piece> read(const std::string& command,
                                                          backends::stream which, std::uint64_t cap,
                                                          std::uint64_t offset,
                                                          std::uint64_t length,
                                                          std::optional<std::uint64_t> total) const;
  /// Where a command's stream is kept.
  [[nodiscard]] std::filesystem::path file(const std::string& command,
                                           backends::stream which) const;
  void forget(const std::string& command) const;
  /// Drops the spools of all commands but those that are `known`.
  [[nodiscard]] base::result<void> retain(
      const std::function<bool(const std::string& command)>& known) const;

 private:
  [[nodiscard]] base::result<sys::unique_fd> create_one(const std::string& name) const;
  [[nodiscard]] bool take_ready(const std::filesystem::path& target) const;

  std::filesystem::path path_;
  mutable std::atomic<unsigned> next_ready_{0};  // where the next ready file most likely is
};

}  // namespace dsec::container

// The command log of one sandbox: which commands were started in it and how they ended, so that the
// next dsecd knows. Two files beside the spools: `commands.log`, a record appended per exec, end
// and forgotten command (command_records.hpp), and `ids.used`, the 8-byte hashes of forgotten ids.
// Durability class process: one write(2) into the page cache per record, nothing is synced. Any
// thread; blocks on the local disk only. Shared by the instance and the job that compacts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.hpp"
#include "backends/container/command_records.hpp"
#include "backends/sys/unique_fd.hpp"
#include "base/result.hpp"

namespace dsec::container {

class command_log {
 public:
  /// Of writes that ended well and were forgotten this many are still known, with the file's size.
  static constexpr std::size_t max_settled_writes = 1024;

  explicit command_log(std::filesystem::path directory) : directory_(std::move(directory)) {}

  /// Makes the log file, empty, in a directory that nobody uses yet: the first command then
  /// allocates no inode.
  static base::result<void> prepare(const std::filesystem::path& directory);
  /// Whether a file of the spool directory is one of these.
  static bool owns(std::string_view file_name);

  struct command {
    backends::known_command known;
    std::string cwd, user;
    std::uint64_t spool_cap = 0;
    bool settled = false;  // a write that ended well and was forgotten: no spools any more
  };
  struct contents {
    std::vector<command> commands;  // in order of starting
    std::vector<std::uint64_t> used_up;
  };
  /// Reads what there is, cutting off what a killed process wrote in part. Before all else.
  base::result<contents> load();

  /// When this fails the command must not be sent: it is not written down.
  base::result<void> begin(const begun_record& record);
  /// What cannot be written now is kept, and written with the next record or by write_late(): no
  /// command begins before. `then` runs once it is written, in the order of the records and before
  /// any later one is; it must not block nor use this log. Never, when the sandbox's files are
  /// gone.
  void note(const log_record& record, std::function<void()> then = {});
  /// True once when records are kept that could not be written: then write_late() is to be called
  /// until it succeeds.
  bool lagging();
  base::result<void> write_late();

  /// True once when it has grown so much that compact() should be called.
  bool grown();
  /// Rewrites it without what is not known any more. One at a time.
  base::result<void> compact();

  /// Gives back the descriptor; the next record opens it again.
  void close();

 private:
  base::result<void> open_to_note_locked();
  base::result<void> append_locked(std::string_view record);
  base::result<void> write_locked(std::string_view bytes);
  base::result<void> open_locked(int create);
  base::result<void> rewrite();
  base::result<void> replace(const std::filesystem::path& next, std::string_view kept, int old);
  std::uint64_t whole_size();
  [[nodiscard]] base::result<void> add_used(const std::vector<std::uint64_t>& hashes) const;
  [[nodiscard]] base::result<std::vector<std::uint64_t>> load_used() const;

  const std::filesystem::path directory_;
  std::mutex mutex_;
  sys::unique_fd file_;  // open from the first record on
  std::uint64_t size_ = 0;
  std::uint64_t kept_ = 0;                           // its size after the last compaction
  std::string late_;                                 // records that could not be written yet
  std::vector<std::function<void()>> when_written_;  // what is to be done when they are
  bool compacting_ = false, writing_late_ = false;
};

}  // namespace dsec::container

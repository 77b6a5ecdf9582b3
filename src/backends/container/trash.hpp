// Directories on their way out: renamed into <state>/trash in the request, deleted by a background
// thread of low priority (removing an upper costs more than making the whole sandbox), again later
// when that fails. Thread-safe; owned by the backend.
#pragma once

#include <chrono>
#include <filesystem>

#include "backends/container/housekeeper.hpp"
#include "backends/sys/unique_fd.hpp"
#include "base/result.hpp"

namespace dsec::container {

class trash {
 public:
  /// Makes the directory if need be and starts deleting what an earlier run left there.
  static base::result<std::unique_ptr<trash>> open(const std::filesystem::path& directory);

  /// Takes `path` (same file system) out of sight at once. One that does not exist is fine.
  base::result<void> discard(const std::filesystem::path& path);
  /// Blocks until everything discarded before is deleted or has to be tried again.
  void empty();

 private:
  trash(sys::unique_fd directory, std::filesystem::path path)
      : directory_(std::move(directory)), path_(std::move(path)) {}
  // All on the thread.
  void remove(const std::string& name);
  [[nodiscard]] base::result<void> try_to_remove(const std::string& name) const;
  void sweep_later();
  void sweep();

  static constexpr std::chrono::milliseconds first_retry{1000}, longest_retry{60'000};

  sys::unique_fd directory_;
  std::filesystem::path path_;
  bool sweep_due_ = false;  // one for all that is left, however much that is
  std::chrono::milliseconds wait_ = first_retry;
  housekeeper thread_{"dsec-trash", 10};
};

}  // namespace dsec::container

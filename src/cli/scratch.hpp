// A directory for trials on the file system of the state directory, held by one process at a time;
// removed with all it holds when its owner goes. Blocking.
#pragma once

#include <filesystem>
#include <string>

#include "backends/sys/unique_fd.hpp"
#include "base/result.hpp"

namespace dsec::cli {

class scratch {
 public:
  /// In the state directory, or beside where it is going to be, named after `what`: doctor, smoke.
  /// What a killed process has left in it is there still. errc::already_exists when another one
  /// has it.
  static base::result<scratch> make(const std::filesystem::path& state, const std::string& instance,
                                    const std::string& what);
  /// Removes all that is in it.
  [[nodiscard]] base::result<void> clear() const;
  scratch(scratch&&) noexcept = default;
  scratch& operator=(scratch&&) = delete;
  ~scratch();

  [[nodiscard]] std::filesystem::path path() const { return parent_ / name_; }

 private:
  scratch(std::filesystem::path parent, std::string name, sys::unique_fd parent_fd,
          sys::unique_fd lock)
      : parent_(std::move(parent)),
        name_(std::move(name)),
        parent_fd_(std::move(parent_fd)),
        lock_(std::move(lock)) {}

  std::filesystem::path parent_;
  std::string name_;
  sys::unique_fd parent_fd_, lock_;
};

}  // namespace dsec::cli

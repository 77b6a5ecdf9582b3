// A private directory <state>/images/tmp/<random> where an import builds what is not an image yet.
// It is flock'ed while it is in use: what a killed import left is not, and goes with the next one.
// Blocking; any thread.
#pragma once

#include <filesystem>

#include "base/paths.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace dsec::fs {

class staging {
 public:
  /// image_store::prepare() must have run.
  static base::result<staging> make(const base::paths& paths);
  staging(staging&& other) noexcept;
  staging& operator=(staging&&) = delete;
  staging(const staging&) = delete;
  staging& operator=(const staging&) = delete;
  /// Removes the directory with all that is in it; what cannot be removed is logged and left to the
  /// next sweep.
  ~staging();

  [[nodiscard]] const std::filesystem::path& directory() const { return directory_; }

  /// Removes what dead imports left. Returns how many entries went.
  static base::result<int> sweep(const base::paths& paths);

 private:
  staging(std::filesystem::path directory, base::unique_fd lock)
      : directory_(std::move(directory)), lock_(std::move(lock)) {}

  std::filesystem::path directory_;
  base::unique_fd lock_;
};

}  // namespace dsec::fs

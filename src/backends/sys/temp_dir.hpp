// A directory of its own in $TMPDIR or /tmp, removed with all it holds when its owner goes.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.hpp"

namespace dsec::sys {

class temp_dir {
 public:
  static base::result<temp_dir> make(const std::string& prefix);
  temp_dir(temp_dir&& other) noexcept : path_(std::move(other.path_)) { other.path_.clear(); }
  temp_dir& operator=(temp_dir&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~temp_dir();

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  explicit temp_dir(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

}  // namespace dsec::sys

// Decoded manifests by file, so that a create does not read and parse them anew. An entry counts as
// long as the file is the one it was read from (device, inode, size, times of change), so what
// another process imports or removes is seen by the next look. Thread-safe.
#pragma once

#include <sys/stat.h>

#include <cstddef>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "fs/image_store.hpp"

namespace dsec::fs {

class manifest_cache {
 public:
  /// Beyond that many everything is forgotten and read again.
  static constexpr std::size_t max_entries = 1024;

  /// `now` is what lstat(2) says of `file` at this moment.
  [[nodiscard]] std::optional<image> find(const std::string& file, const struct stat& now) const;
  /// `before` was taken before the file was read: if it was replaced meanwhile, find() sees it.
  void put(const std::string& file, const struct stat& before, const image& decoded);

 private:
  struct entry {
    struct stat stamp;
    image decoded;
  };
  mutable std::mutex mutex_;
  std::unordered_map<std::string, entry> entries_;
};

}  // namespace dsec::fs

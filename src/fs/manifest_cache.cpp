#include "fs/manifest_cache.hpp"

namespace dsec::fs {
namespace {

bool same(const timespec& a, const timespec& b) {
  return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size &&
         same(a.st_mtim, b.st_mtim) && same(a.st_ctim, b.st_ctim);
}

}  // namespace

std::optional<image> manifest_cache::find(const std::string& file, const struct stat& now) const {
  const std::scoped_lock lock(mutex_);
  const auto it = entries_.find(file);
  if (it == entries_.end() || !same_file(it->second.stamp, now)) return std::nullopt;
  return it->second.decoded;
}

void manifest_cache::put(const std::string& file, const struct stat& before, const image& decoded) {
  const std::scoped_lock lock(mutex_);
  if (entries_.size() >= max_entries && !entries_.contains(file)) entries_.clear();
  entries_.insert_or_assign(file, entry{before, decoded});
}

}  // namespace dsec::fs

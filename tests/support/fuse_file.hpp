// A read-only file, whose bytes come from another file by way of a FUSE server in this process:
// what a layer looks like that is loaded on demand. Reads can be held back, so that whoever reads
// waits in the kernel. Raw protocol (linux/fuse.h); its mount is in no namespace; one server
// thread; needs root. The destructor lets go of everything.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "backends/sys/unique_fd.hpp"

namespace dsec::test {

class fuse_file {
 public:
  /// Throws when there is no FUSE here or it cannot be mounted.
  explicit fuse_file(const std::filesystem::path& source);
  ~fuse_file();
  fuse_file(const fuse_file&) = delete;
  fuse_file& operator=(const fuse_file&) = delete;

  /// Its path, for this process.
  [[nodiscard]] std::filesystem::path image() const {
    return "/proc/self/fd/" + std::to_string(mount_.get()) + "/image";
  }
  /// From now on reads wait.
  void hold() { holding_ = true; }
  /// Reads that wait.
  [[nodiscard]] int held() const { return held_count_; }
  /// Reads that wait are answered, and later ones at once.
  void let_go();

 private:
  struct held_read {
    std::uint64_t unique, offset;
    std::uint32_t size;
  };
  void serve();
  bool serve_one(std::vector<char>& buffer);
  void answer(std::uint64_t unique, int error, const void* data, std::size_t size) const;
  void answer_read(const held_read& r) const;

  sys::unique_fd source_, device_, wake_, mount_;
  std::uint64_t size_ = 0;
  std::atomic<bool> holding_{false}, stopping_{false};
  std::atomic<int> held_count_{0};
  std::vector<held_read> held_;  // the server thread's
  std::thread server_;
};

}  // namespace dsec::test

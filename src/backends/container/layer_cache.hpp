// Which layers are attached in the launcher's namespace. Attached once, whoever asks first (others
// wait), counted while sandboxes use them, kept attached afterwards because the next sandbox most
// likely wants them again; the longest unused are detached when there are too many. Thread-safe;
// hold() blocks. Owned by the backend.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "backends/container/launcher.hpp"

namespace dsec::container {

class layer_cache {
 public:
  layer_cache(launcher& host, std::size_t max_unused) : host_(host), max_unused_(max_unused) {}

  /// Attaches what is not attached yet and counts all; nothing is held when it fails.
  base::result<void> hold(const std::vector<backends::layer_ref>& layers);
  void release(const std::vector<backends::layer_ref>& layers);
  /// Layers that the launcher has attached already, for an earlier dsecd: names.
  void inherit(const std::vector<std::string>& digests);
  /// Counts those of a sandbox that is taken over: they are attached.
  void hold_inherited(const std::vector<backends::layer_ref>& layers);
  /// Detaches everything that is unused; at close that is everything.
  base::result<void> detach_unused();

 private:
  struct entry {
    bool attached = false;  // false: somebody is at it
    unsigned users = 0;
    std::uint64_t last_use = 0;
  };
  base::result<void> hold_one(const backends::layer_ref& layer);
  base::result<void> trim_locked(std::size_t keep);

  launcher& host_;
  std::size_t max_unused_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, entry> layers_;
  std::uint64_t clock_ = 0;
};

}  // namespace dsec::container

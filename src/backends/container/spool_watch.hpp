// Who waits for a spool file to grow is told so by inotify(7): one instance of it for all sandboxes
// of a backend, on the event loop's thread, made when it is first needed. Files that nobody waits
// for are not watched and cost nothing. Thread-safe.
#pragma once

#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "backends/sys/event_loop.hpp"
#include "backends/sys/unique_fd.hpp"
#include "base/result.hpp"

namespace dsec::container {

class spool_watch {
 public:
  explicit spool_watch(sys::event_loop& loop) : loop_(loop) {}
  ~spool_watch();
  spool_watch(const spool_watch&) = delete;
  spool_watch& operator=(const spool_watch&) = delete;

  /// See instance::watch_output.
  base::result<void> once(const std::filesystem::path& file, std::function<void()> grown);

 private:
  using calls = std::vector<std::function<void()>>;

  base::result<void> open();
  void read_events();
  calls take(int watch);

  sys::event_loop& loop_;
  std::mutex mutex_;
  sys::unique_fd inotify_;
  std::optional<sys::event_loop::token> token_;
  std::unordered_map<int, calls> waiting_;  // by watch descriptor
};

}  // namespace dsec::container

#include "backends/container/spool_watch.hpp"

#include <sys/epoll.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace dsec::container {
namespace {

using base::errc;
using base::fail;
using base::result;

/// What inotify_init1(2) and inotify_add_watch(2) say when the host has no more of them for root.
result<void> out_of(const char* what, const char* setting) {
  if (errno == EMFILE || errno == ENOSPC || errno == ENOMEM) {
    return fail(errc::capacity, std::string("output cannot be waited for: the host has no more ") +
                                    what + "; raise " + setting);
  }
  return base::fail_errno("output cannot be waited for");
}

}  // namespace

spool_watch::~spool_watch() {
  if (token_) loop_.unwatch(*token_, inotify_.get());
}

result<void> spool_watch::open() {
  if (inotify_) return {};
  sys::unique_fd made(::inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
  if (!made) return out_of("inotify instances", "fs.inotify.max_user_instances");
  DSEC_TRY(token_, loop_.watch(made.get(), EPOLLIN, [this](std::uint32_t) { read_events(); }));
  inotify_ = std::move(made);
  return {};
}

result<void> spool_watch::once(const std::filesystem::path& file, std::function<void()> grown) {
  // Held over both, so that no event of the watch is taken before it has its entry.
  const std::scoped_lock lock(mutex_);
  DSEC_CHECK(open());
  const int watch = ::inotify_add_watch(inotify_.get(), file.c_str(), IN_MODIFY | IN_ONESHOT);
  if (watch < 0) return out_of("inotify watches", "fs.inotify.max_user_watches");
  waiting_[watch].push_back(std::move(grown));
  return {};
}

/// Whatever is said of a watch ends it: it has fired, or (IN_IGNORED) its file is gone.
void spool_watch::read_events() {
  alignas(inotify_event) std::array<char, 4096> buffer{};
  const int inotify = [this] {
    const std::scoped_lock lock(mutex_);
    return inotify_.get();
  }();
  while (true) {
    const auto n = ::read(inotify, buffer.data(), buffer.size());
    if (n <= 0) return;
    for (ssize_t at = 0; at < n;) {
      inotify_event event{};
      std::memcpy(&event, buffer.data() + at, sizeof event);
      at += static_cast<ssize_t>(sizeof event + event.len);
      for (const auto& call : take(event.wd)) call();
    }
  }
}

/// After an overflow (watch -1) nobody knows which have fired.
spool_watch::calls spool_watch::take(int watch) {
  const std::scoped_lock lock(mutex_);
  calls all;
  if (watch >= 0) {
    if (auto found = waiting_.extract(watch)) all = std::move(found.mapped());
    return all;
  }
  for (auto& [fired, some] : std::exchange(waiting_, {})) {
    for (auto& call : some) all.push_back(std::move(call));
  }
  return all;
}

}  // namespace dsec::container

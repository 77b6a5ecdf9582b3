#include "backends/sys/event_loop.hpp"

#include <pthread.h>
#include <sys/eventfd.h>

#include <array>
#include <cerrno>

#include "base/log.hpp"

namespace dsec::sys {

using base::fail_errno;
using base::result;

result<std::unique_ptr<event_loop>> event_loop::start(const std::string& name) {
  unique_fd epoll(::epoll_create1(EPOLL_CLOEXEC));
  unique_fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll || !wake) return fail_errno("cannot make an event loop");
  epoll_event event{};
  event.events = EPOLLIN;
  if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0)
    return fail_errno("cannot make an event loop");
  std::unique_ptr<event_loop> loop(new event_loop(std::move(epoll), std::move(wake)));
  ::pthread_setname_np(loop->thread_.native_handle(), name.c_str());
  return loop;
}

event_loop::event_loop(unique_fd epoll, unique_fd wake)
    : epoll_(std::move(epoll)), wake_(std::move(wake)), thread_([this] { run(); }) {}

event_loop::~event_loop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

result<event_loop::token> event_loop::watch(int fd, std::uint32_t events, callback run) {
  const std::scoped_lock lock(mutex_);
  const auto t = next_++;
  epoll_event event{};
  event.events = events;
  event.data.u64 = t;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    return fail_errno("cannot watch a descriptor");
  callbacks_.emplace(t, std::make_shared<callback>(std::move(run)));
  return t;
}

result<void> event_loop::change(token t, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = t;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0)
    return fail_errno("cannot change what is watched");
  return {};
}

void event_loop::unwatch(token t, int fd) {
  std::unique_lock lock(mutex_);
  if (callbacks_.erase(t) != 0) ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  if (t == none || std::this_thread::get_id() == thread_.get_id()) return;
  // Also when the callback unwatched itself: it is still at work with what its owner destroys next.
  idle_.wait(lock, [&] { return running_ != t; });
}

void event_loop::run() {
  std::array<epoll_event, 64> events{};
  while (true) {
    const int n = ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    if (n < 0 && errno != EINTR) {
      base::log::error("event_loop_failed", {{"errno", errno}});
      return;
    }
    for (int i = 0; i < n; ++i)
      dispatch(events[static_cast<std::size_t>(i)].data.u64,
               events[static_cast<std::size_t>(i)].events);
    const std::scoped_lock lock(mutex_);
    if (stopping_) return;
  }
}

void event_loop::dispatch(token t, std::uint32_t events) {
  std::shared_ptr<callback> run;
  {
    const std::scoped_lock lock(mutex_);
    const auto it = callbacks_.find(t);
    if (it == callbacks_.end()) return;  // unwatched after epoll_wait had reported it
    run = it->second;
    running_ = t;
  }
  (*run)(events);
  {
    const std::scoped_lock lock(mutex_);
    running_ = none;
  }
  idle_.notify_all();
}

}  // namespace dsec::sys

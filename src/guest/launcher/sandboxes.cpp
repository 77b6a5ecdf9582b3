#include "guest/launcher/sandboxes.hpp"

#include <linux/wait.h>
#include <sys/epoll.h>

#include <algorithm>

namespace dsec::launcher {

sandbox* sandbox_table::find(std::string_view id) {
  const auto it = sandboxes_.find(id);
  return it == sandboxes_.end() ? nullptr : &it->second;
}

bool sandbox_table::uses_slot(std::uint32_t number) const {
  return slots_.contains(number);
}

std::uint32_t sandbox_table::live() const {
  return static_cast<std::uint32_t>(std::count_if(
      sandboxes_.begin(), sandboxes_.end(), [](const auto& each) { return !each.second.exited; }));
}

status sandbox_table::add(std::string_view id, sandbox&& s, map::value_type*& entry) {
  LAUNCH_TRY("keep", s.channel.keep());
  LAUNCH_TRY("keep", s.pidfd.keep());
  const auto it = sandboxes_.emplace(id, std::move(s)).first;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = &*it;
  const long watched =
      sys::call(SYS_epoll_ctl, epoll_, EPOLL_CTL_ADD, it->second.pidfd.get(), &event);
  if (watched < 0) {
    sandboxes_.erase(it);
    return failed("watch", watched);
  }
  slots_.insert(it->second.slot);
  entry = &*it;
  return {};
}

/// Closing our pidfd is not enough: dsecd has a duplicate, and an epoll set watches what both stand
/// for.
void sandbox_table::unwatch(const sandbox& s) const {
  sys::call(SYS_epoll_ctl, epoll_, EPOLL_CTL_DEL, s.pidfd.get(), nullptr);
}

void sandbox_table::reap(sandbox& s) const {
  int state = -1;
  if (s.pid != 0 && sys::call(SYS_wait4, s.pid, &state, WNOHANG, nullptr) != s.pid) return;
  s.exited = true;
  s.status = state;
  unwatch(s);
}

status sandbox_table::release(std::string_view id) {
  const auto it = sandboxes_.find(id);
  if (it == sandboxes_.end()) return {"sandbox", ENOENT};
  if (!it->second.exited) return {"lives", EBUSY};
  layer_table::give_back(it->second.layers);
  forget(it);
  return {};
}

void sandbox_table::erase(std::string_view id) {
  const auto it = sandboxes_.find(id);
  if (it == sandboxes_.end()) return;
  unwatch(it->second);
  forget(it);
}

void sandbox_table::forget(map::iterator it) {
  slots_.erase(slots_.find(it->second.slot));
  sandboxes_.erase(it);
}

}  // namespace dsec::launcher

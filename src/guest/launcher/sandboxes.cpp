#include "guest/launcher/sandboxes.hpp"

#include <linux/wait.h>

#include <algorithm>

namespace dsec::launcher {

sandbox* sandbox_table::find(std::string_view id) {
  const auto it = sandboxes_.find(id);
  return it == sandboxes_.end() ? nullptr : &it->second;
}

bool sandbox_table::uses_slot(std::uint32_t number) const {
  return std::any_of(sandboxes_.begin(), sandboxes_.end(),
                     [=](const auto& each) { return each.second.slot == number; });
}

std::uint32_t sandbox_table::live() const {
  return static_cast<std::uint32_t>(std::count_if(
      sandboxes_.begin(), sandboxes_.end(), [](const auto& each) { return !each.second.exited; }));
}

status sandbox_table::add(std::string_view id, sandbox&& s, map::value_type*& entry) {
  LAUNCH_TRY("keep", s.channel.keep());
  LAUNCH_TRY("keep", s.pidfd.keep());
  entry = &*sandboxes_.emplace(id, std::move(s)).first;
  return {};
}

void sandbox_table::reap(sandbox& s) {
  if (s.pid == 0) {
    s.exited = true;
    s.status = -1;
    return;
  }
  int state = 0;
  if (sys::call(SYS_wait4, s.pid, &state, WNOHANG, nullptr) != s.pid) return;
  s.exited = true;
  s.status = state;
}

status sandbox_table::release(std::string_view id) {
  const auto it = sandboxes_.find(id);
  if (it == sandboxes_.end()) return {"sandbox", ENOENT};
  if (!it->second.exited) return {"lives", EBUSY};
  for (layer* each : it->second.layers) --each->users;
  sandboxes_.erase(it);
  return {};
}

void sandbox_table::erase(std::string_view id) {
  if (const auto it = sandboxes_.find(id); it != sandboxes_.end()) sandboxes_.erase(it);
}

}  // namespace dsec::launcher

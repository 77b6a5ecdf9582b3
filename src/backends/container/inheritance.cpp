#include "backends/container/inheritance.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "backends/sys/pidfd.hpp"

namespace dsec::container {
namespace {

bool lives(const listed_sandbox& s) {
  return !s.ended && !sys::wait_ended(s.pidfd.get(), sys::after(std::chrono::milliseconds(0)));
}

/// Its layers are not known before its record is seen. Until then nobody detaches any.
survivor describe(const listed_sandbox& held) {
  survivor s{};
  std::memcpy(s.request.sandbox, held.id.data(), held.id.size());
  s.request.slot = held.slot;
  s.channel.reset(::fcntl(held.channel.get(), F_DUPFD_CLOEXEC, 0));
  s.pidfd.reset(::fcntl(held.pidfd.get(), F_DUPFD_CLOEXEC, 0));
  return s;
}

}  // namespace

void inheritance::fill(std::vector<listed_sandbox> all) {
  const std::scoped_lock lock(mutex_);
  for (auto& s : all) {
    auto id = s.id;
    held_.insert_or_assign(std::move(id), std::move(s));
  }
}

void inheritance::note_exit(const std::string& id, int status) {
  const std::scoped_lock lock(mutex_);
  const auto found = held_.find(id);
  if (found == held_.end()) return;
  found->second.ended = true;
  found->second.status = status;
}

std::optional<inheritance::standing> inheritance::find(const std::string& id) {
  const std::scoped_lock lock(mutex_);
  const auto found = held_.find(id);
  if (found == held_.end()) return std::nullopt;
  const auto& s = found->second;
  return standing{lives(s), s.ended ? s.status : -1};
}

base::result<bool> inheritance::take(
    const std::string& id, const std::function<base::result<void>(listed_sandbox&)>& use) {
  const std::scoped_lock lock(mutex_);
  const auto found = held_.find(id);
  if (found == held_.end() || !lives(found->second)) return false;
  DSEC_CHECK(use(found->second));
  held_.erase(found);
  return true;
}

bool inheritance::empty() {
  const std::scoped_lock lock(mutex_);
  return held_.empty();
}

bool inheritance::any_alive() {
  const std::scoped_lock lock(mutex_);
  return std::any_of(held_.begin(), held_.end(), [](const auto& s) { return lives(s.second); });
}

std::vector<listed_sandbox> inheritance::take_rest() {
  const std::scoped_lock lock(mutex_);
  std::vector<listed_sandbox> rest;
  for (auto& [id, s] : std::exchange(held_, {})) rest.push_back(std::move(s));
  return rest;
}

std::vector<survivor> inheritance::survivors(const std::function<std::vector<survivor>()>& others) {
  const std::scoped_lock lock(mutex_);
  auto all = others();
  for (const auto& [id, s] : held_) {
    if (lives(s)) all.push_back(describe(s));
  }
  return all;
}

}  // namespace dsec::container

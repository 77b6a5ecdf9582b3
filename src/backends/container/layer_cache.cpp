#include "backends/container/layer_cache.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "backends/sys/file.hpp"
#include "base/log.hpp"

namespace dsec::container {

using base::errc;
using base::result;

namespace {

/// What mounting says of a file that is no EROFS image, or a damaged one.
bool says_damaged(const base::error& e) {
  return e.sys_errno == EINVAL || e.sys_errno == EBADMSG || e.sys_errno == EUCLEAN ||
         e.sys_errno == EIO;
}

result<void> attach_to(launcher_client& launcher, const backends::layer_ref& layer) {
  DSEC_TRY(const auto blob, sys::open_at(AT_FDCWD, layer.blob, O_RDONLY));
  auto attached = launcher.attach_layer(layer.digest, blob.get());
  if (attached || !says_damaged(attached.error())) return attached;
  return base::fail({errc::corrupt,
                     "layer sha256:" + layer.digest + " (" + layer.blob.string() +
                         ") is damaged, import its image again: " + attached.error().message,
                     attached.error().sys_errno});
}

}  // namespace

result<void> layer_cache::hold(const std::vector<backends::layer_ref>& layers) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (auto held = hold_one(layers[i]); !held) {
      release({layers.begin(), layers.begin() + static_cast<std::ptrdiff_t>(i)});
      return held;
    }
  }
  return {};
}

result<void> layer_cache::hold_one(const backends::layer_ref& layer) {
  std::unique_lock lock(mutex_);
  while (true) {
    const auto found = layers_.find(layer.digest);
    if (found == layers_.end()) break;
    if (found->second.attached) {
      ++found->second.users;
      return {};
    }
    changed_.wait(lock);
  }
  layers_.emplace(layer.digest, entry{});
  lock.unlock();
  const auto attach = [&]() -> result<void> {
    DSEC_TRY(const auto lease, host_.get());
    return attach_to(*lease.client, layer);
  };
  auto attached = attach();
  lock.lock();
  if (attached)
    layers_[layer.digest] = {true, 1, 0};
  else
    layers_.erase(layer.digest);
  changed_.notify_all();
  return attached;
}

void layer_cache::release(const std::vector<backends::layer_ref>& layers) {
  const std::scoped_lock lock(mutex_);
  for (const auto& l : layers) {
    auto& e = layers_[l.digest];
    --e.users;
    e.last_use = ++clock_;
  }
  // Its users are gone, whatever becomes of the layer: one that cannot be detached now is found
  // again by the next release.
  if (const auto trimmed = trim_locked(max_unused_); !trimmed)
    base::log::warn("layers_not_detached", {{"error", trimmed.error().to_string()}});
}

void layer_cache::inherit(const std::vector<std::string>& digests) {
  const std::scoped_lock lock(mutex_);
  for (const auto& digest : digests) layers_.emplace(digest, entry{true, 0, 0});
}

void layer_cache::hold_inherited(const std::vector<backends::layer_ref>& layers) {
  const std::scoped_lock lock(mutex_);
  for (const auto& l : layers) {
    auto& e = layers_[l.digest];
    e.attached = true;
    ++e.users;
  }
}

result<void> layer_cache::detach_unused() {
  const std::scoped_lock lock(mutex_);
  return trim_locked(0);
}

/// Under the lock: nobody may start to use a layer that is being detached.
result<void> layer_cache::trim_locked(std::size_t keep) {
  std::vector<decltype(layers_)::iterator> unused;
  for (auto it = layers_.begin(); it != layers_.end(); ++it) {
    if (it->second.attached && it->second.users == 0) unused.push_back(it);
  }
  if (unused.size() <= keep) return {};
  std::sort(unused.begin(), unused.end(),
            [](const auto& a, const auto& b) { return a->second.last_use < b->second.last_use; });
  const auto lease = host_.current();
  result<void> first;
  for (std::size_t i = 0; i + keep < unused.size(); ++i) {
    auto detached = lease.client ? lease.client->detach_layer(unused[i]->first) : result<void>();
    // Whether a launcher that died had detached it is unknown. To forget it is right in both cases:
    // what is attached already is attached again at no cost.
    const bool forget = detached || detached.error().code == errc::unavailable ||
                        detached.error().code == errc::not_found;
    // One that cannot go is not in the way of the others.
    if (forget)
      layers_.erase(unused[i]);
    else if (first)
      first = std::move(detached);
  }
  return first;
}

}  // namespace dsec::container

#include "auth/key_watch.hpp"

#include <chrono>
#include <utility>

#include "auth/api_key.hpp"
#include "base/log.hpp"

namespace dsec::auth {
namespace {

/// What is revoked must have ended a second later.
constexpr std::chrono::milliseconds pause{250};

constexpr const char* local_principal = "root";

}  // namespace

known_key local_key(std::string_view key) {
  auto hash = hash_of(key);
  auto id = std::string(local_id_prefix) + hash.substr(0, 8);
  return {std::move(id), local_principal, std::move(hash)};
}

key_watch::key_watch(key_store store, known_key local, std::shared_ptr<gate> to)
    : store_(std::move(store)), gate_(std::move(to)), local_(std::move(local)) {}

base::result<std::unique_ptr<key_watch>> key_watch::open(const base::paths& where, known_key local,
                                                         std::shared_ptr<gate> to) {
  DSEC_TRY(auto store, key_store::open(where));
  std::unique_ptr<key_watch> out(new key_watch(std::move(store), std::move(local), std::move(to)));
  DSEC_TRY(auto keys, out->all_keys(out->local_));
  out->gate_->set_keys(std::move(keys));
  return out;
}

base::result<std::vector<known_key>> key_watch::all_keys(const known_key& local) {
  DSEC_TRY(auto keys, store_.good());
  keys.push_back(local);
  return keys;
}

void key_watch::start(revoked tell) {
  thread_ = std::thread([this, tell = std::move(tell)] { run(tell); });
}

void key_watch::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void key_watch::set_local(known_key local) {
  {
    const std::scoped_lock lock(mutex_);
    if (local_.hash == local.hash) return;
    local_ = std::move(local);
    local_changed_ = true;
  }
  wake_.notify_all();
}

void key_watch::run(const revoked& tell) {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    wake_.wait_for(lock, pause, [this] { return stopping_ || local_changed_; });
    if (stopping_) return;
    unread_ |= std::exchange(local_changed_, false);
    lock.unlock();
    const auto done = look(tell);
    if (!done && !failing_)
      base::log::error("keys_unreadable", {{"why", done.error().to_string()}});
    if (done && failing_) base::log::info("keys_readable");
    failing_ = !done;
    lock.lock();
  }
}

base::result<void> key_watch::look(const revoked& tell) {
  DSEC_TRY(const bool changed, store_.changed());
  unread_ |= changed;
  if (!unread_) return {};
  known_key local;
  {
    const std::scoped_lock lock(mutex_);
    local = local_;
  }
  DSEC_TRY(auto keys, all_keys(local));
  unread_ = false;
  const auto count = keys.size();
  const auto gone = gate_->set_keys(std::move(keys));
  base::log::info("keys", {{"good", count}, {"revoked", gone.size()}});
  if (!gone.empty()) tell(gone);
  return {};
}

}  // namespace dsec::auth

#include "backends/container/launcher.hpp"

#include <array>
#include <utility>

#include "base/failpoint.hpp"
#include "base/log.hpp"

namespace dsec::container {

using base::result;

launcher::launcher(base::paths paths, sys::event_loop& loop, hooks h)
    : paths_(std::move(paths)), loop_(loop), hooks_(std::move(h)) {}

result<launcher::lease> launcher::get() {
  if (auto living = current(); living.client) return living;
  const std::scoped_lock lock(mutex_);
  if (shut_down_)
    return base::fail(base::errc::cancelled, "the container backend is shutting down");
  if (!current().client) DSEC_CHECK(start_locked());
  return held();
}

result<std::vector<listed_sandbox>> launcher::take_over() {
  const std::scoped_lock lock(mutex_);
  std::string why = "it is not there";
  if (auto connection = launcher_process::connect(paths_)) {
    auto met = meet_locked(std::move(*connection));
    if (met) return met;
    if (met.error().code != base::errc::unavailable) {
      // It answers, and what is wrong is wrong with us: what it holds may go on, without another.
      shut_down_ = true;
      return met;
    }
    why = met.error().to_string();
  }
  DSEC_TRY(const auto killed, kill_launchers(paths_.state(), 0));
  if (killed > 0) base::log::warn("launcher_killed", {{"why", why}});
  return std::vector<listed_sandbox>();
}

result<std::vector<listed_sandbox>> launcher::meet_locked(sys::unique_fd connection) {
  DSEC_TRY(std::shared_ptr<launcher_client> client,
           launcher_client::open(loop_, std::move(connection), hooks_.events));
  DSEC_TRY(auto process, launcher_process::take_over(client->pid()));
  auto listed = client->list();
  if (!listed) {
    process.leave();
    return listed;
  }
  layers_ns_ = client->take_layers_namespace();
  process_.emplace(std::move(process));
  publish(std::move(client));
  base::log::info("launcher_taken_over", {{"pid", process_->pid()}, {"sandboxes", listed->size()}});
  return listed;
}

result<std::size_t> launcher::end_others() {
  const std::scoped_lock lock(mutex_);
  return kill_launchers(paths_.state(), process_ ? process_->pid() : 0);
}

launcher::lease launcher::held() {
  const std::scoped_lock lock(lease_mutex_);
  return {client_, generation_};
}

launcher::lease launcher::current() {
  auto l = held();
  if (l.client && l.client->is_down()) l.client.reset();
  return l;
}

result<bool> launcher::release(const std::string& sandbox) {
  auto holder = current();
  if (!holder.client) {
    const std::scoped_lock started(mutex_);
    holder = current();
  }
  if (!holder.client) return true;
  const auto released = holder.client->release(sandbox);
  if (released || released.error().code == base::errc::not_found ||
      released.error().code == base::errc::unavailable)
    return true;
  const auto again = released.error().sys_errno;
  if (again == EBUSY || again == EAGAIN) return false;
  return base::fail(released.error());
}

void launcher::publish(std::shared_ptr<launcher_client> client) {
  const std::scoped_lock lock(lease_mutex_);
  if (client) ++generation_;
  client_.swap(client);  // the old one ends after the lock
}

result<void> launcher::start_locked() {
  publish(nullptr);
  DSEC_CHECK(end_process_locked());
  DSEC_TRY(auto process, launcher_process::start(paths_, layers_ns_.get()));
  DSEC_CHECK(base::failpoint::check("container.launcher.started"));
  DSEC_TRY(auto connection, launcher_process::connect(paths_));
  DSEC_TRY(std::shared_ptr<launcher_client> client,
           launcher_client::open(loop_, std::move(connection), hooks_.events));
  for (auto& s : hooks_.survivors()) {
    const auto adopted = client->adopt(s.request, std::array{s.channel.get(), s.pidfd.get()});
    if (!adopted)
      base::log::error("sandbox_not_adopted",
                       {{"sandbox", s.request.sandbox}, {"error", adopted.error().to_string()}});
  }
  DSEC_CHECK(base::failpoint::check("container.launcher.adopted"));
  layers_ns_ = client->take_layers_namespace();
  process_.emplace(std::move(process));
  publish(std::move(client));
  base::log::info("launcher_started",
                  {{"pid", process_->pid()}, {"generation", held().generation}});
  return {};
}

/// A connection that is closed says nothing about the process, and to wait for one that lives would
/// be to wait for ever.
result<void> launcher::end_process_locked() {
  if (!process_) return {};
  DSEC_CHECK(process_->end());
  process_.reset();
  return {};
}

result<void> launcher::shutdown() {
  const std::scoped_lock lock(mutex_);
  if (const auto living = current(); living.client) {
    const auto asked = living.client->shutdown();
    if (!asked) base::log::warn("launcher_killed", {{"why", asked.error().to_string()}});
  }
  // A refill that was under way must not start another one that nobody would end.
  shut_down_ = true;
  publish(nullptr);
  layers_ns_.reset();
  return end_process_locked();
}

void launcher::leave() {
  const std::scoped_lock lock(mutex_);
  shut_down_ = true;
  publish(nullptr);
  layers_ns_.reset();
  if (process_) process_->leave();
  process_.reset();
}

}  // namespace dsec::container

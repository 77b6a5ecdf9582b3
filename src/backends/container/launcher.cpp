#include "backends/container/launcher.hpp"

#include <array>
#include <cerrno>
#include <utility>

#include "backends/container/launcher_search.hpp"
#include "base/failpoint.hpp"
#include "base/log.hpp"

namespace dsec::container {
namespace {

using base::errc;
using base::fail;
using base::result;

/// The one error of a connect that says that there is no launcher, or none that can be reached.
bool nobody_listens(const base::error& e) {
  return e.sys_errno == ENOENT || e.sys_errno == ECONNREFUSED;
}

/// One that it holds already is fine.
result<void> adopt(launcher_client& client, const survivor& s) {
  DSEC_CHECK(base::failpoint::check("container.launcher.adopt"));
  if (!s.channel || !s.pidfd)
    return fail(base::from_errno("cannot duplicate the descriptors of a sandbox", EMFILE));
  auto adopted = client.adopt(s.request, std::array{s.channel.get(), s.pidfd.get()});
  if (!adopted && adopted.error().code == errc::already_exists) return {};
  return adopted;
}

}  // namespace

launcher::launcher(base::paths paths, sys::event_loop& loop, hooks h)
    : paths_(std::move(paths)), loop_(loop), hooks_(std::move(h)) {}

result<launcher::lease> launcher::get() {
  if (auto living = current(); living.client) return living;
  const std::scoped_lock lock(mutex_);
  if (shut_down_) return fail(errc::cancelled, "the container backend is shutting down");
  if (!current().client) DSEC_CHECK(start_locked());
  return held();
}

result<std::optional<inherited_launcher>> launcher::take_over(std::chrono::milliseconds patience) {
  const std::scoped_lock lock(mutex_);
  launcher_vigil vigil(paths_, patience);
  auto met = await_locked(vigil);
  if (!met) shut_down_ = true;  // what it holds may go on, without another launcher
  return met;
}

result<std::optional<inherited_launcher>> launcher::await_locked(launcher_vigil& vigil) {
  do {
    auto connection = launcher_process::connect(paths_);
    if (connection) {
      auto met = meet_locked(std::move(*connection), vigil);
      // One that hangs up may be dying: then nobody listens when it is asked again.
      if (met || met.error().code != errc::unavailable) return met;
    } else if (nobody_listens(connection.error())) {
      DSEC_TRY(const auto killed, kill_launchers(paths_.state(), 0));
      if (killed > 0) base::log::warn("launcher_killed", {{"why", connection.error().to_string()}});
      return std::nullopt;
    } else if (connection.error().sys_errno != EAGAIN) {  // that is: it does not accept
      return fail(connection.error());
    }
  } while (vigil.go_on_after_a_pause());
  return fail(vigil.silence());
}

result<inherited_launcher> launcher::meet_locked(sys::unique_fd connection, launcher_vigil& vigil) {
  DSEC_TRY(std::shared_ptr<launcher_client> client,
           launcher_client::open(loop_, std::move(connection), hooks_.events,
                                 [&] { return vigil.go_on(); }));
  DSEC_TRY(auto process, launcher_process::take_over(client->pid()));
  auto listed = client->list();
  if (!listed) {
    process.leave();
    return fail(listed.error());
  }
  client->settle();
  met_ = true;
  layers_ns_ = client->take_layers_namespace();
  process_.emplace(std::move(process));
  publish(std::move(client));
  base::log::info("launcher_taken_over", {{"pid", process_->pid()}, {"sandboxes", listed->size()}});
  return inherited_launcher{process_->pid(), held().generation, std::move(*listed)};
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
  const auto being_told = [&] {
    const std::scoped_lock lock(lease_mutex_);
    return adopting_;
  };
  if (!holder.client || being_told()) {
    const std::scoped_lock told(mutex_);
    holder = current();
  }
  if (!holder.client) return true;
  const auto released = holder.client->release(sandbox);
  if (released || released.error().code == errc::not_found ||
      released.error().code == errc::unavailable)
    return true;
  const auto again = released.error().sys_errno;
  if (again == EBUSY || again == EAGAIN) return false;
  return fail(released.error());
}

void launcher::publish(std::shared_ptr<launcher_client> client) {
  const std::scoped_lock lock(lease_mutex_);
  if (client) ++generation_;
  client_.swap(client);  // the old one ends after the lock
}

result<void> launcher::start_locked() {
  replacing_ = replacing_ || met_;
  publish(nullptr);
  DSEC_CHECK(end_process_locked());
  DSEC_TRY(auto process, launcher_process::start(paths_, layers_ns_.get()));
  DSEC_CHECK(base::failpoint::check("container.launcher.started"));
  DSEC_TRY(auto connection, launcher_process::connect(paths_));
  DSEC_TRY(std::shared_ptr<launcher_client> client,
           launcher_client::open(loop_, std::move(connection), hooks_.events));
  met_ = true;
  const auto adopted = adopt_all_locked(*client);
  DSEC_CHECK(base::failpoint::check("container.launcher.adopted"));
  layers_ns_ = client->take_layers_namespace();
  process_.emplace(std::move(process));
  publish(std::move(client));
  base::log::info("launcher_started",
                  {{"pid", process_->pid()}, {"generation", held().generation}});
  adopted ? tell_if_replaced_locked() : hooks_.incomplete();
  return {};
}

void launcher::tell_if_replaced_locked() {
  if (std::exchange(replacing_, false)) hooks_.replaced();
}

result<void> launcher::adopt_all_locked(launcher_client& client) {
  result<void> all;
  for (const auto& s : hooks_.survivors()) {
    auto adopted = adopt(client, s);
    if (adopted) continue;
    base::log::error("sandbox_not_adopted",
                     {{"sandbox", s.request.sandbox}, {"error", adopted.error().to_string()}});
    all = std::move(adopted);
  }
  return all;
}

result<void> launcher::adopt_again() {
  const std::scoped_lock lock(mutex_);
  const auto living = current();
  if (!living.client) return {};  // the next one is told of all
  set_adopting(true);
  auto adopted = adopt_all_locked(*living.client);
  set_adopting(false);
  if (adopted) tell_if_replaced_locked();
  return adopted;
}

void launcher::see_held(std::uint64_t holder) {
  // If it dies after this, the next one asks for the survivors after this, too.
  if (const auto now = current(); now.client && now.generation == holder) return;
  if (!adopt_again()) hooks_.incomplete();
}

void launcher::set_adopting(bool adopting) {
  const std::scoped_lock lock(lease_mutex_);
  adopting_ = adopting;
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

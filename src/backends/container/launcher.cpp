#include "backends/container/launcher.hpp"

#include <utility>

#include "backends/container/launcher_process.hpp"
#include "base/log.hpp"

namespace dsec::container {

using base::result;

launcher::launcher(base::paths paths, sys::event_loop& loop, hooks h)
    : paths_(std::move(paths)), loop_(loop), hooks_(std::move(h)) {}

result<launcher::lease> launcher::get() {
  const std::scoped_lock lock(mutex_);
  if (shut_down_)
    return base::fail(base::errc::cancelled, "the container backend is shutting down");
  if (!client_ || client_->is_down()) DSEC_CHECK(start_locked());
  return lease{client_, generation_};
}

launcher::lease launcher::current() {
  const std::scoped_lock lock(mutex_);
  if (!client_ || client_->is_down()) return {nullptr, generation_};
  return {client_, generation_};
}

result<void> launcher::start_locked() {
  if (child_ != 0) reap(std::exchange(child_, 0));
  client_.reset();
  DSEC_TRY(auto process, launcher_process::start(paths_, layers_ns_.get()));
  child_ = process.pid;
  DSEC_TRY(std::shared_ptr<launcher_client> client,
           launcher_client::open(loop_, std::move(process.connection), hooks_.events));
  for (auto& s : hooks_.survivors()) {
    const auto adopted = client->adopt(s.request, std::array{s.channel.get(), s.pidfd.get()});
    if (!adopted)
      base::log::error("sandbox_not_adopted",
                       {{"sandbox", s.request.sandbox}, {"error", adopted.error().to_string()}});
  }
  layers_ns_ = client->take_layers_namespace();
  client_ = std::move(client);
  ++generation_;
  base::log::info("launcher_started", {{"pid", child_}, {"generation", generation_}});
  return {};
}

result<void> launcher::shutdown() {
  const std::scoped_lock lock(mutex_);
  if (client_ && !client_->is_down()) DSEC_CHECK(client_->shutdown());
  // A refill that was under way must not start another one that nobody would end.
  shut_down_ = true;
  client_.reset();
  layers_ns_.reset();
  if (child_ != 0) reap(std::exchange(child_, 0));
  return {};
}

}  // namespace dsec::container

#include "backends/container/sandbox_parts.hpp"

#include <fcntl.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <thread>

#include "backends/container/home.hpp"
#include "backends/sys/file.hpp"
#include "base/failpoint.hpp"
#include "base/log.hpp"

namespace dsec::container {
namespace {

using base::errc;
using base::fail;
using base::result;

/// From its clone on: aether says hello within a millisecond; a machine that swaps gets its time.
constexpr auto handshake_timeout = std::chrono::seconds(10);
/// From SIGKILL until nothing is left; the kernel may have gigabytes to give back.
constexpr auto death_timeout = std::chrono::seconds(10);
constexpr auto ask_again = std::chrono::milliseconds(5);

// layers
// ----------------------------------------------------------------------------------------------------------

result<void> hold_layers(sandbox_parts& s) {
  return s.host.layers.hold(s.spec.layers);
}
result<void> release_layers(sandbox_parts& s) {
  s.host.layers.release(s.spec.layers);
  return {};
}

// slot
// ------------------------------------------------------------------------------------------------------------

result<void> take_slot(sandbox_parts& s) {
  DSEC_TRY(s.place, s.host.slots.take());
  return {};
}

result<void> return_slot(sandbox_parts& s) {
  if (s.pidfd) return fail(errc::internal, "slot " + s.place->groups.name + " still has processes");
  DSEC_CHECK(s.host.slots.give_back(*s.place));
  const std::scoped_lock lock(s.mutex);
  s.place.reset();
  return {};
}

// disk
// ------------------------------------------------------------------------------------------------------------

/// The slot's directory gets the sandbox's name. The spools in it stand beside the writable layer
/// and outlive it: whoever owns the record drops them.
result<void> name_disk(sandbox_parts& s) {
  DSEC_CHECK(name_home(s.host.paths, s.place->number, s.spec.sandbox_id));
  s.open_spool();
  return {};
}

result<void> drop_disk(sandbox_parts& s) {
  return s.host.trash->discard(s.host.paths.sandbox(s.spec.sandbox_id) / "upper");
}

// limits
// ----------------------------------------------------------------------------------------------------------

result<void> set_limits(sandbox_parts& s) {
  return s.host.groups.set_limits(s.place->groups, s.spec.limits);
}

// init
// ------------------------------------------------------------------------------------------------------------

result<guest::launch_create> describe_create(const sandbox_parts& s) {
  const auto& fds = s.place->groups.fds;
  guest::launch_create r{};
  const auto put = [](auto& field, const std::string& text) {
    if (text.size() >= sizeof field) return false;
    std::memcpy(field, text.data(), text.size());
    return true;
  };
  bool fits = put(r.sandbox, s.spec.sandbox_id) && put(r.hostname, s.spec.hostname) &&
              s.spec.layers.size() <= guest::max_layers;
  for (std::size_t i = 0; fits && i < s.spec.layers.size(); ++i)
    fits = put(r.layer[i], s.spec.layers[i].digest);
  if (!fits)
    return fail(errc::invalid_argument, "sandbox '" + s.spec.sandbox_id +
                                            "': a name is too long or there are more than " +
                                            std::to_string(guest::max_layers) + " layers");
  r.slot = s.place->number;
  r.layers = static_cast<std::uint32_t>(s.spec.layers.size());
  r.init_tasks = static_cast<std::uint32_t>(fds.init_tasks.size());
  r.cmd_tasks = static_cast<std::uint32_t>(fds.cmd_tasks.size());
  r.oom_v2 = fds.oom_version;
  r.nofile = s.spec.limits.nofile;
  r.shm_bytes = s.spec.limits.memory_bytes /
                2;  // what tmpfs(5) takes by default; charged to the memory limit
  return r;
}

result<void> create_init(sandbox_parts& s) {
  DSEC_TRY(const auto request, describe_create(s));
  DSEC_TRY(const auto upper,
           sys::open_at(AT_FDCWD, s.host.paths.sandbox(s.spec.sandbox_id) / "upper",
                        O_RDONLY | O_DIRECTORY));
  const auto& groups = s.place->groups;
  std::vector<int> fds{upper.get(), groups.fds.init.get(), groups.slot.fd()};
  if (groups.fds.oom) fds.push_back(groups.fds.oom.get());
  for (const auto& t : groups.fds.init_tasks) fds.push_back(t.get());
  for (const auto& t : groups.fds.cmd_tasks) fds.push_back(t.get());
  DSEC_TRY(const auto lease, s.host.launcher.get());
  if (lease.generation != s.place->generation)
    return fail(errc::unavailable, "the slot's namespaces went with the launcher that held them");
  auto made = lease.client->create(request, fds);
  if (!made) {
    // One that died may have made it after all, and one that only hung up still may: not after
    // this.
    if (made.error().code == errc::unavailable) (void)lease.client->kill();
    return fail(made.error());
  }
  s.place->groups.fds = {};  // aether has its own; an idle sandbox holds few descriptors
  DSEC_CHECK(base::failpoint::check("container.launcher.answered"));
  {
    const std::scoped_lock lock(s.mutex);
    s.pidfd = std::move(made->pidfd);
    s.socket = std::move(made->channel);
  }
  s.host.launcher.see_held(lease.generation);
  return {};
}

/// Also after a create that failed: then there may be no aether, or one that nobody knows of.
result<void> kill_init(sandbox_parts& s) {
  const auto until = sys::after(death_timeout);
  {
    const std::scoped_lock lock(s.mutex);
    s.leaving = true;
  }
  const auto& group = s.place->groups.slot;
  while (true) {
    DSEC_CHECK(group.end(until));
    if (s.pidfd && !sys::wait_ended(s.pidfd.get(), until))
      return fail(errc::deadline_exceeded, "aether of '" + s.spec.sandbox_id + "' does not die");
    DSEC_TRY(const bool released, s.host.launcher.release(s.spec.sandbox_id));
    if (released && group.wait_empty(sys::after(std::chrono::milliseconds(0)))) break;
    if (sys::remaining_ms(until) == 0)
      return fail(errc::deadline_exceeded,
                  "the launcher does not let go of '" + s.spec.sandbox_id + "'");
    std::unique_lock lock(s.mutex);
    if (s.exit_status) {
      lock.unlock();
      std::this_thread::sleep_for(ask_again);
    } else {
      s.exited.wait_for(lock, std::chrono::milliseconds(20),
                        [&] { return s.exit_status.has_value(); });
    }
  }
  const std::scoped_lock lock(s.mutex);
  s.pidfd.reset();
  s.socket.reset();
  return {};
}

// channel and handshake
// -------------------------------------------------------------------------------------------

result<void> open_channel(sandbox_parts& s, aether_channel::before said) {
  const std::scoped_lock lock(s.mutex);
  DSEC_TRY(s.channel, aether_channel::open(*s.host.loop, std::move(s.socket), s.events, said));
  return {};
}

result<void> connect_channel(sandbox_parts& s) {
  return open_channel(s, aether_channel::before::silence);
}

result<void> close_channel(sandbox_parts& s) {
  if (!s.channel) return {};  // it was taken over and the channel could not be opened
  s.channel->close();         // waits for a callback that runs, so the lock is not held meanwhile
  const std::scoped_lock lock(s.mutex);
  s.channel.reset();
  return {};
}

result<void> await_aether(sandbox_parts& s) {
  return s.channel->handshake(sys::after(handshake_timeout));
}

// the list
// --------------------------------------------------------------------------------------------------------

struct step {
  const char* name;  // also of its failure point: container.start.<name>
  result<void> (*run)(sandbox_parts&);
  result<void> (*undo)(sandbox_parts&);  // nullptr: nothing to undo
  bool undo_failed = false;              // undone also when its run failed
};

constexpr std::array container_steps{
    step{"layers", hold_layers, release_layers},  // attached once, shared, counted
    step{"slot", take_slot, return_slot},         // uid range, groups, namespaces, directory: ready
    step{"disk", name_disk, drop_disk},           // upper and spool directories
    step{"limits", set_limits, nullptr},          // on the `cmd` groups
    step{"init", create_init, kill_init, true},   // the launcher mounts the root and starts aether
    step{"channel", connect_channel, close_channel},
    step{"handshake", await_aether, nullptr},  // aether has its spawner: running
};
static_assert(container_steps.size() == start_step_count);

}  // namespace

result<void> sandbox_parts::start() {
  for (std::size_t i = 0; i < container_steps.size(); ++i) {
    const auto& step = container_steps[i];
    auto outcome = step.run(*this);
    done[i] = outcome || step.undo_failed;
    if (outcome) {
      outcome = base::failpoint::check(host.areas.start + "." + step.name);
    }
    if (outcome) continue;
    auto error = outcome.error();
    error.message = std::string("start (") + step.name + "): " + error.message;
    return abandon(std::move(error));
  }
  return {};
}

result<void> sandbox_parts::abandon(base::error why) {
  if (const auto undone = stop(); !undone)
    why.message += "; and while undoing it: " + undone.error().message;
  if (spool != nullptr)
    (void)host.trash->discard(host.paths.sandbox(spec.sandbox_id));  // no command ran: no spools
  return fail(std::move(why));
}

result<void> sandbox_parts::stop() {
  std::optional<base::error> failed;
  for (std::size_t i = container_steps.size(); i-- > 0;) {
    if (!done[i]) continue;
    const auto undo = container_steps[i].undo;
    auto outcome = undo == nullptr ? result<void>() : undo(*this);
    done[i] = !outcome;
    if (outcome) outcome = base::failpoint::check(host.areas.stop + "." + container_steps[i].name);
    if (outcome) continue;
    const auto message =
        std::string("stop (") + container_steps[i].name + "): " + outcome.error().to_string();
    if (!failed)
      failed = base::error{outcome.error().code, message, 0};
    else
      failed->message += "; " + message;
  }
  if (failed) return fail(std::move(*failed));
  return {};
}

void sandbox_parts::open_spool() {
  const auto directory = host.paths.sandbox(spec.sandbox_id) / "spool";
  spool = std::make_shared<spool_dir>(directory);
  log = std::make_shared<command_log>(directory);
}

void sandbox_parts::take_over(slot s, sys::unique_fd aether, sys::unique_fd channel_end) {
  const std::scoped_lock lock(mutex);
  place = std::move(s);
  pidfd = std::move(aether);
  socket = std::move(channel_end);
  done.fill(true);
}

result<void> sandbox_parts::reconnect() {
  return container::open_channel(*this, aether_channel::before::another);
}

void sandbox_parts::note_exit(int status) {
  bool expected = false;
  {
    const std::scoped_lock lock(mutex);
    exit_status = status;
    expected = leaving;
  }
  exited.notify_all();
  if (!expected)
    base::log::warn("aether_exited", {{"sandbox", spec.sandbox_id}, {"status", status}});
}

std::optional<survivor> sandbox_parts::describe() {
  const std::scoped_lock lock(mutex);
  if (leaving || !pidfd) return std::nullopt;
  survivor s{};
  std::memcpy(s.request.sandbox, spec.sandbox_id.data(), spec.sandbox_id.size());
  s.request.slot = place->number;
  s.request.layers = static_cast<std::uint32_t>(spec.layers.size());
  for (std::size_t i = 0; i < spec.layers.size(); ++i)
    std::memcpy(s.request.layer[i], spec.layers[i].digest.data(), spec.layers[i].digest.size());
  s.channel.reset(::fcntl(channel ? channel->socket() : socket.get(), F_DUPFD_CLOEXEC, 0));
  s.pidfd.reset(::fcntl(pidfd.get(), F_DUPFD_CLOEXEC, 0));
  return s;
}

std::shared_ptr<aether_channel> sandbox_parts::open_channel() {
  const std::scoped_lock lock(mutex);
  return channel;
}

}  // namespace dsec::container

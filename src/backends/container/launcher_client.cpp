#include "backends/container/launcher_client.hpp"

#include <signal.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/log.hpp"

namespace dsec::container {
namespace {

using base::errc;
using base::fail;
using base::result;
using guest::launch;

/// The launcher answers within milliseconds; it is stuck when it takes this long.
constexpr auto request_timeout = std::chrono::seconds(10);
constexpr auto patience_interval = std::chrono::milliseconds(500);
constexpr auto exit_timeout = std::chrono::seconds(5);
constexpr std::size_t buffer_bytes = 8192;  // the largest message is launch_create

const base::error launcher_died{errc::unavailable, "the launcher died", 0};

/// A request without a body.
struct bare_request {
  guest::launch_header h;
};

template <class T>
result<T> read_as(std::span<const std::byte> data) {
  if (data.size() != sizeof(T))
    return fail(errc::protocol, "the launcher sent a message of the wrong size");
  T value;
  std::memcpy(&value, data.data(), sizeof value);
  return value;
}

std::string text(const char* field, std::size_t size) {
  return {field, ::strnlen(field, size)};
}

template <std::size_t N>
bool put(char (&field)[N], const std::string& value) {
  if (value.size() >= N) return false;
  std::memcpy(field, value.data(), value.size());
  return true;
}

}  // namespace

result<std::unique_ptr<launcher_client>> launcher_client::open(sys::event_loop& loop,
                                                               sys::unique_fd socket,
                                                               launcher_events events,
                                                               launcher_patience patience,
                                                               guest::versions spoken) {
  std::unique_ptr<launcher_client> client(
      new launcher_client(loop, std::move(socket), std::move(events), std::move(patience)));
  {
    const std::scoped_lock lock(client->mutex_);  // the first callback waits until token_ is set
    DSEC_TRY(client->token_, loop.watch(client->socket_.get(), EPOLLIN,
                                        [c = client.get()](std::uint32_t) { c->on_events(); }));
  }
  DSEC_CHECK(client->greet(spoken));
  const std::scoped_lock lock(client->mutex_);
  if (client->down_) return fail(errc::unavailable, "the launcher died as soon as it ran");
  client->greeted_ = true;
  return client;
}

launcher_client::launcher_client(sys::event_loop& loop, sys::unique_fd socket,
                                 launcher_events events, launcher_patience patience)
    : loop_(loop),
      socket_(std::move(socket)),
      events_(std::move(events)),
      patience_(std::move(patience)) {}

launcher_client::~launcher_client() {
  {
    const std::scoped_lock lock(mutex_);
    down_ = true;
  }
  changed_.notify_all();
  loop_.unwatch(token_, socket_.get());
}

result<void> launcher_client::greet(guest::versions spoken) {
  guest::launch_hello hello{};
  hello.version = guest::launch_version;
  DSEC_TRY(auto got, ask(launch::hello, hello, {}, "greet dsecd"));
  DSEC_TRY(const auto answer, read_as<guest::launch_hello>(got.data));
  if (!spoken.has(answer.version))
    return fail(errc::unsupported,
                "the launcher, process " + std::to_string(answer.pid) + ", speaks version " +
                    std::to_string(answer.version) + ", this dsecd " +
                    std::to_string(spoken.oldest) + " to " + std::to_string(spoken.current) +
                    ": it and its sandboxes were left as they are; start a dsecd that speaks it, "
                    "or end them with `dsecd stop --all`");
  if (got.fds.size() != 1)
    return fail(errc::protocol, "the launcher did not show its mount namespace");
  layers_ns_ = std::move(got.fds[0]);
  DSEC_TRY(pidfd_, sys::open_pidfd(answer.pid));
  pid_ = answer.pid;
  return {};
}

template <class Request>
result<void> launcher_client::order(launch type, Request& request, std::span<const int> fds,
                                    const char* what) {
  DSEC_TRY(const auto got, ask(type, request, fds, what));
  return outcome(got, what);
}

result<void> launcher_client::outcome(const reply& r, const char* what) {
  DSEC_TRY(const auto answer, read_as<guest::launch_result>(r.data));
  if (answer.sys_errno == 0) return {};
  auto message = std::string("the launcher cannot ") + what;
  if (const auto step = text(answer.step, sizeof answer.step); !step.empty())
    message += ": " + step;
  return fail(base::from_errno(std::move(message), answer.sys_errno));
}

result<void> launcher_client::attach_layer(const std::string& digest, int blob) {
  guest::launch_layer request{};
  if (!put(request.name, digest))
    return fail(errc::invalid_argument, "layer name '" + digest + "' is too long");
  return order(launch::attach_layer, request, std::array{blob}, "attach a layer");
}

result<void> launcher_client::detach_layer(const std::string& digest) {
  guest::launch_layer request{};
  put(request.name, digest);
  return order(launch::detach_layer, request, {}, "detach a layer");
}

result<void> launcher_client::make_slot(std::uint32_t slot, std::uint32_t uid_base,
                                        std::uint32_t aether_uid) {
  guest::launch_slot request{};
  request.slot = slot;
  request.uid_base = uid_base;
  request.aether_uid = aether_uid;
  return order(launch::make_slot, request, {}, "make a slot");
}

result<void> launcher_client::drop_slot(std::uint32_t slot) {
  guest::launch_slot request{};
  request.slot = slot;
  return order(launch::drop_slot, request, {}, "drop a slot");
}

result<launcher_client::created> launcher_client::create(guest::launch_create request,
                                                         std::span<const int> fds) {
  constexpr auto what = "create the sandbox";
  DSEC_TRY(auto got, ask(launch::create, request, fds, what));
  DSEC_CHECK(outcome(got, what));
  if (got.fds.size() != 2)
    return fail(errc::protocol, "the launcher sent no channel for the new sandbox");
  return created{std::move(got.fds[0]), std::move(got.fds[1])};
}

result<void> launcher_client::release(const std::string& sandbox) {
  guest::launch_id request{};
  put(request.sandbox, sandbox);
  return order(launch::release, request, {}, "release the sandbox");
}

result<void> launcher_client::adopt(guest::launch_adopt request, std::span<const int> fds) {
  return order(launch::adopt, request, fds, "adopt the sandbox");
}

result<std::vector<listed_sandbox>> launcher_client::list() {
  constexpr auto what = "list its sandboxes";
  bare_request request{};
  DSEC_TRY(auto got, ask_all(launch::list, request, {}, what));
  DSEC_CHECK(outcome(*got.answer, what));
  std::vector<listed_sandbox> all;
  for (auto& one : got.listed) {
    DSEC_TRY(const auto body, read_as<guest::launch_listed>(one.data));
    if (one.fds.size() != 2)
      return fail(errc::protocol, "the launcher listed a sandbox without its channel");
    all.push_back({text(body.sandbox, sizeof body.sandbox), body.slot, body.exited != 0,
                   body.status, std::move(one.fds[0]), std::move(one.fds[1])});
  }
  return all;
}

result<void> launcher_client::shutdown() {
  bare_request request{};
  DSEC_CHECK(order(launch::shutdown, request, {}, "shut down"));
  if (!sys::wait_ended(pidfd_.get(), sys::after(exit_timeout)))
    return fail(errc::deadline_exceeded, "the launcher does not exit");
  return {};
}

bool launcher_client::kill() {
  return sys::signal_process(pidfd_.get(), SIGKILL) &&
         sys::wait_ended(pidfd_.get(), sys::after(exit_timeout));
}

bool launcher_client::is_down() {
  const std::scoped_lock lock(mutex_);
  return down_;
}

result<launcher_client::waiter> launcher_client::call(std::span<std::byte> request,
                                                      std::span<const int> fds, const char* what) {
  waiter mine;
  std::unique_lock lock(mutex_);
  if (down_) return fail(errc::unavailable, "the launcher is gone");
  const auto number = next_++;
  std::memcpy(request.data() + offsetof(guest::launch_header, req), &number, sizeof number);
  const auto sent = sys::send_datagram(socket_.get(), request, fds);
  if (!sent && sent.error().code == errc::unavailable) {
    lock.unlock();
    // Seen here before the event loop saw it: the next request gets another launcher.
    went_down(launcher_died);
  }
  if (!sent) return fail(sent.error());
  if (!*sent)
    return fail({errc::capacity, "the launcher takes no more requests now: try again", EAGAIN});
  waiting_.emplace(number, &mine);
  const bool in_time = wait(lock, mine);
  waiting_.erase(number);
  if (mine.answer) return mine;
  if (in_time) return fail(why_down_);
  lock.unlock();
  if (patience_) {
    const base::error silent{errc::unavailable, std::string("the launcher does not ") + what, 0};
    went_down(silent);
    return fail(silent);
  }
  // It may still do what it was asked for, at any time: no state of ours could be relied on. So it
  // is ended, like one that has died by itself.
  base::log::error("launcher_stuck", {{"request", what}});
  if (pidfd_) kill();
  went_down(launcher_died);
  return fail(errc::unavailable,
              std::string("the launcher took too long to ") + what + " and was killed");
}

bool launcher_client::wait(std::unique_lock<std::mutex>& lock, const waiter& mine) {
  const auto over = [&] { return mine.answer || down_; };
  if (!patience_) return changed_.wait_for(lock, request_timeout, over);
  while (!changed_.wait_for(lock, patience_interval, over)) {
    lock.unlock();
    const bool go_on = patience_();
    lock.lock();
    if (!go_on) return over();
  }
  return true;
}

void launcher_client::on_events() {
  std::array<std::byte, buffer_bytes> buffer;
  while (true) {
    auto got = sys::receive_datagram(socket_.get(), buffer);
    if (got && got->state == sys::receive_state::nothing) return;
    if (!got) return went_down(got.error());
    if (got->state == sys::receive_state::closed) return went_down(launcher_died);
    take(std::span(buffer).first(got->size), std::move(got->fds));
  }
}

void launcher_client::take(std::span<const std::byte> datagram, std::vector<sys::unique_fd> fds) {
  guest::launch_header h;
  if (datagram.size() < sizeof h)
    return went_down({errc::protocol, "the launcher sent a datagram without a header", 0});
  std::memcpy(&h, datagram.data(), sizeof h);
  if (h.req == 0) return take_event(datagram);
  const std::scoped_lock lock(mutex_);
  const auto found = waiting_.find(h.req);
  if (found == waiting_.end()) return;  // nobody waits any more: its descriptors are closed here
  reply r{{datagram.begin(), datagram.end()}, std::move(fds)};
  if (h.type == static_cast<std::uint32_t>(launch::listed)) {
    found->second->listed.push_back(std::move(r));
    return;
  }
  found->second->answer = std::move(r);
  changed_.notify_all();
}

void launcher_client::take_event(std::span<const std::byte> datagram) {
  const auto event = read_as<guest::launch_exited>(datagram);
  if (!event || event->h.type != static_cast<std::uint32_t>(launch::exited)) {
    base::log::warn("launcher_event_unknown", {});
    return;
  }
  events_.exited(text(event->sandbox, sizeof event->sandbox), event->status);
}

void launcher_client::went_down(const base::error& why) {
  bool greeted = false;
  {
    const std::scoped_lock lock(mutex_);
    if (down_) return;
    down_ = true;
    why_down_ = why;
    greeted = greeted_;
  }
  changed_.notify_all();
  loop_.unwatch(token_, socket_.get());
  if (greeted) events_.down();  // else whoever opens it sees the error
}

}  // namespace dsec::container

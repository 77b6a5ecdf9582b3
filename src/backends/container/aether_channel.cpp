#include "backends/container/aether_channel.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "backends/sys/datagram.hpp"

namespace dsec::container {
namespace {

using base::errc;
using base::result;

/// aether reads at once unless it is stuck; this is a burst of several hundred commands.
constexpr std::size_t max_queued_bytes = 4U << 20U;
constexpr std::size_t max_queued_datagrams = 512;
/// Datagrams read before other descriptors of the loop get their turn.
constexpr int receive_batch = 64;
/// aether keeps what is not acknowledged; when nothing else is sent, a ping says so this often.
constexpr std::uint32_t acknowledge_every = 32;

std::string refusal(std::uint32_t version) {
  return "aether speaks channel version " + std::to_string(version) + ", which this dsecd does not";
}

}  // namespace

result<std::unique_ptr<aether_channel>> aether_channel::open(sys::event_loop& loop,
                                                             sys::unique_fd socket,
                                                             channel_events events, before said,
                                                             guest::versions spoken) {
  std::unique_ptr<aether_channel> channel(
      new aether_channel(loop, std::move(socket), std::move(events), spoken));
  const std::scoped_lock lock(channel->mutex_);  // the first callback waits until token_ is set
  channel->resuming_ = said == before::another;
  DSEC_TRY(channel->token_, loop.watch(channel->socket_.get(), EPOLLIN,
                                       [c = channel.get()](std::uint32_t e) { c->on_events(e); }));
  return channel;
}

aether_channel::aether_channel(sys::event_loop& loop, sys::unique_fd socket, channel_events events,
                               guest::versions spoken)
    : loop_(loop), socket_(std::move(socket)), events_(std::move(events)), spoken_(spoken) {}

aether_channel::~aether_channel() {
  close();
}

void aether_channel::close() {
  {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
    queue_.clear();
  }
  changed_.notify_all();
  loop_.unwatch(token_, socket_.get());
}

result<void> aether_channel::handshake(sys::deadline until) {
  DSEC_CHECK(send(encode_hello(0)));
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, until, [&] { return closed_ || hello_; }))
    return base::fail(errc::deadline_exceeded, "aether did not say hello in time");
  if (!hello_) return base::fail(errc::unavailable, "aether died before it said hello");
  if (!spoken_.has(hello_->version)) return base::fail(errc::unsupported, refusal(hello_->version));
  return {};
}

result<void> aether_channel::resume() {
  return send(encode_hello(0));
}

result<void> aether_channel::send(frame_bytes datagram, fd_list fds) {
  const std::scoped_lock lock(mutex_);
  if (closed_) return base::fail(errc::sandbox_failed, "the sandbox died: its channel is closed");
  if (queue_.size() >= max_queued_datagrams || queued_bytes_ + datagram.size() > max_queued_bytes)
    return base::fail(errc::capacity,
                      "the sandbox does not take more commands now: its channel is full");
  stamp(datagram, numbers_);
  unacknowledged_ = 0;
  pending p{std::move(datagram), std::move(fds)};
  if (queue_.empty()) {
    DSEC_TRY(const bool sent, push_locked(p));
    if (sent) return {};
  }
  queued_bytes_ += p.datagram.size();
  queue_.push_back(std::move(p));
  flush_locked();
  return {};
}

result<bool> aether_channel::push_locked(const pending& p) {
  std::array<int, sys::max_datagram_fds> fds{};
  const auto count = p.fds ? std::min(fds.size(), p.fds->size()) : 0;
  for (std::size_t i = 0; i < count; ++i) fds[i] = (*p.fds)[i].get();
  return sys::send_datagram(socket_.get(), p.datagram, std::span(fds).first(count));
}

/// Sends what waits and watches for writability exactly while something waits. Errors show as
/// EPOLLHUP later.
void aether_channel::flush_locked() {
  while (!queue_.empty()) {
    const auto sent = push_locked(queue_.front());
    if (!sent || !*sent) break;
    queued_bytes_ -= queue_.front().datagram.size();
    queue_.pop_front();
  }
  if (want_write_ == !queue_.empty()) return;
  want_write_ = !queue_.empty();
  (void)loop_.change(token_, socket_.get(), EPOLLIN | (want_write_ ? EPOLLOUT : 0U));
}

void aether_channel::on_events(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0U) {
    const std::scoped_lock lock(mutex_);
    flush_locked();
  }
  for (int i = 0; i < receive_batch; ++i) {
    if (!receive_some()) return;
  }
}

/// False: nothing more to read now, or closed.
bool aether_channel::receive_some() {
  alignas(8) static thread_local std::array<std::byte, guest::max_datagram> buffer;
  auto got = sys::receive_datagram(socket_.get(), buffer);
  if (!got) {
    fail(got.error().message);
    return false;
  }
  if (got->state == sys::receive_state::nothing) return false;
  if (got->state == sys::receive_state::closed) {
    fail("aether closed its channel");
    return false;
  }
  return take(std::span(buffer).first(got->size));
}

bool aether_channel::take(std::span<const std::byte> datagram) {
  auto in = decode(datagram);
  if (!in) {
    fail(in.error().message);
    return false;
  }
  if (const auto* hello = std::get_if<frame_hello>(&in->body)) return take_hello(hello->body);
  const auto seq = in->header.seq;
  {
    const std::scoped_lock lock(mutex_);
    if (closed_) return false;
    if (seq != 0 && (resuming_ || seq <= numbers_.received)) return true;  // comes, or came, again
  }
  events_.receive(std::move(*in));
  // Only now: what is acknowledged aether may forget.
  if (seq != 0 && note_received(seq)) (void)send(encode_plain(guest::msg::ping));
  return true;
}

bool aether_channel::take_hello(const guest::hello_body& hello) {
  bool refused = false;
  {
    const std::scoped_lock lock(mutex_);
    if (closed_) return false;
    hello_ = hello;
    refused = std::exchange(resuming_, false) && !spoken_.has(hello.version);
  }
  changed_.notify_all();
  if (refused) fail(refusal(hello.version));
  return !refused;
}

/// True when it is time to acknowledge it with a message of its own.
bool aether_channel::note_received(std::uint32_t seq) {
  const std::scoped_lock lock(mutex_);
  numbers_.received = seq;
  return !closed_ && ++unacknowledged_ >= acknowledge_every;
}

void aether_channel::fail(std::string why) {
  {
    const std::scoped_lock lock(mutex_);
    if (closed_) return;
    closed_ = true;
    queue_.clear();
  }
  changed_.notify_all();
  loop_.unwatch(token_, socket_.get());
  events_.closed(std::move(why));
}

}  // namespace dsec::container

// dsecd's end of one sandbox's channel (guest/channel.hpp): numbers, acknowledges, queues when the
// socket is full. Owned by its container_instance. send() is for any thread and never blocks; what
// arrives is handed to `receive` on the event loop's thread. A malformed datagram or a closed end
// closes the channel: `closed` runs once.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "backends/container/aether_frames.hpp"
#include "backends/sys/event_loop.hpp"
#include "backends/sys/pidfd.hpp"

namespace dsec::container {

struct channel_events {
  std::function<void(incoming)> receive;
  std::function<void(std::string why)> closed;
};

class aether_channel {
 public:
  /// Descriptors of a datagram; shared, so that one that may have to be sent again can be kept.
  using fd_list = std::shared_ptr<const std::vector<sys::unique_fd>>;

  /// What aether has said before: nothing yet, or something to an earlier dsecd. That one may have
  /// left messages unread; all that it had not acknowledged comes again after aether's answer to
  /// resume(), so numbered ones before are passed over.
  enum class before { silence, another };
  /// An aether of none of the versions `spoken` is errc::unsupported, or closes the channel.
  static base::result<std::unique_ptr<aether_channel>> open(
      sys::event_loop& loop, sys::unique_fd socket, channel_events events,
      before said = before::silence, guest::versions spoken = guest::channel_versions);
  ~aether_channel();
  aether_channel(const aether_channel&) = delete;
  aether_channel& operator=(const aether_channel&) = delete;

  /// Says hello and waits for aether's. errc::deadline_exceeded, unavailable (it died), unsupported
  /// (its version).
  base::result<void> handshake(sys::deadline until);
  /// Says hello to an aether that has spoken with another, and waits for nothing.
  base::result<void> resume();

  /// errc::sandbox_failed once closed; errc::capacity when aether has not read for so long that the
  /// queue is full.
  base::result<void> send(frame_bytes datagram, fd_list fds = nullptr);

  /// No callback runs after it returns.
  void close();

  /// Stays this object's.
  [[nodiscard]] int socket() const { return socket_.get(); }

 private:
  struct pending {
    frame_bytes datagram;
    fd_list fds;
  };
  aether_channel(sys::event_loop& loop, sys::unique_fd socket, channel_events events,
                 guest::versions spoken);
  void on_events(std::uint32_t events);
  bool receive_some();
  bool take(std::span<const std::byte> datagram);
  bool take_hello(const guest::hello_body& hello);
  bool note_received(std::uint32_t seq);
  void flush_locked();
  base::result<bool> push_locked(const pending& p);
  void fail(std::string why);

  sys::event_loop& loop_;
  sys::unique_fd socket_;
  channel_events events_;
  const guest::versions spoken_;
  sys::event_loop::token token_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  sequence numbers_;
  std::uint32_t unacknowledged_ = 0;  // received since the last datagram that could carry an ack
  std::deque<pending> queue_;
  std::size_t queued_bytes_ = 0;
  bool want_write_ = false, closed_ = false;
  bool resuming_ = false;  // until aether's hello
  std::optional<guest::hello_body> hello_;
};

}  // namespace dsec::container

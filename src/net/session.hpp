// The WebSocket phase: one reader, one writer, a bounded queue between the gateway's actors and the
// socket. The public methods lock, note and post; all else runs on the socket's strand, which alone
// touches stream and handler.
//
//   opening ─> open ──close(), bad frame, wind_down()──> closing: the queue drains, then the
//     │         │                                           │     close handshake
//     └─────────┴──socket error, abort(), peer's close, ────┴──> dead: the socket is closed
//                  close_patience over
//
// The session lives until it is dead and none of its operations is pending; then `closed` is
// called, once. Internal to src/net.
//
// ws_session.cpp     how it begins
// session_read.cpp   reader by credit
// session_write.cpp  bounded writer
// session_end.cpp    all ways to the end
// session_watch.cpp  signs of life
#pragma once

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket/stream.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "net/hub.hpp"
#include "net/ws_session.hpp"

namespace dsec::net {

namespace beast = boost::beast;
namespace websocket = beast::websocket;
using beast::error_code;
using websocket::close_code;
using steady = std::chrono::steady_clock;

// For the queue to drain, and again for the close handshake.
inline constexpr std::chrono::seconds close_patience{5};
// Kept by a connection between messages.
inline constexpr std::size_t idle_buffer_bytes = 64U << 10U;
// A millisecond or more to read or write.
inline constexpr std::size_t large_text_bytes = 256U << 10U;

class session final : public ws_session, public peer, public std::enable_shared_from_this<session> {
  enum class state { opening, open, closing, dead };

  struct queued {
    proto::frame frame;
    encoding as = encoding::undecided;
  };

  /// Call with mutex_ held: after the end nothing is posted any more, the I/O threads may be gone.
  template <class F>
  void on_strand(F f) {
    if (finished_) return;
    asio::post(strand_, [self = shared_from_this(), f = std::move(f)] {
      if (self->state_ != state::dead) f(*self);
      self->settle();
    });
  }

  /// The handler of one asynchronous operation: keeps the session and is counted until it has run.
  template <class F>
  auto operation(F f) {
    ++pending_;
    return [self = shared_from_this(), f = std::move(f)](error_code problem, auto&&...) {
      --self->pending_;
      f(*self, problem);
      self->settle();
    };
  }

 public:
  session(std::shared_ptr<hub> h, wire w, hub_place place, connection_info info,
          session_opened opened, const traffic& t);

  // ws_session.cpp
  void connect(const std::string& host, const std::string& path,
               std::function<void(base::error)> failed);
  void start(http_request upgrade);

  // --- from any thread ---

  void send(proto::frame f) override;
  void send_then_pack(proto::frame f) override;
  bool is_text() override;
  bool queued_at_most(std::size_t level) override;
  void grant(std::uint32_t n) override;
  void close(std::string reason) override;
  void leave(std::string reason) override;
  void trust() override;
  void expel(std::string reason) override;
  void wind_down() override;
  void abort() override;

 private:
  // ws_session.cpp
  void choose_subprotocol(const http_request& upgrade);
  void configure();
  void accepted(error_code problem);

  // session_read.cpp: one frame per credit, while the large ones not dealt with are few
  struct pending;
  void read_next();
  void received(error_code problem);
  void decode_aside();
  void take(base::result<proto::frame> frame);
  /// Of the message that has come; nullopt when the connection began with the other kind.
  std::optional<encoding> encoding_of_message();
  proto::frame counted(proto::frame f);
  /// On any thread.
  void dealt_with(std::size_t bytes);

  // session_write.cpp: one frame at a time, held meanwhile
  void queue(proto::frame f, bool pack_after);
  void write_next();
  void encode_aside(proto::frame f);
  void write(outgoing next);
  void written(error_code problem);

  // session_end.cpp
  void begin_close(close_code code, std::string_view why);
  void shake_hands();
  void linger();
  void drain();
  void die();
  void settle();

  // session_watch.cpp
  void watch_in(steady::duration delay);
  void watch();
  bool alive();

  /// Runs `work` on the coders' thread, then `done` on ours.
  template <class Work, class Done>
  void aside(Work work, Done done) {
    // The context must not run out of work meanwhile, or `done` would never run.
    hub_->coders.post(principal_, [back = asio::make_work_guard(strand_), work = std::move(work),
                                   done = std::move(done)]() mutable {
      work();
      asio::post(back.get_executor(), [done = std::move(done)]() mutable { done(error_code()); });
    });
  }

  const std::shared_ptr<hub> hub_;
  hub_place place_;
  const std::string principal_;
  connection_info info_;
  session_opened opened_;
  const traffic traffic_;

  // Of the strand.
  const executor strand_;
  std::optional<websocket::stream<wire, false>> stream_;  // false: no permessage-deflate
  timer timer_;
  state state_ = state::opening;
  int pending_ = 0;
  session_handler handler_;
  beast::flat_buffer buffer_;
  bool reading_ = false;
  bool malformed_ = false;  // the peer sent no message: nothing more is read
  bool pinging_ = false;
  steady::time_point heard_;    // something whole
  steady::time_point lived_;    // any sign of life, as watch() saw it
  std::size_t seen_bytes_ = 0;  // of buffer_, when watch() looked
  outgoing writing_;
  websocket::close_reason reason_;

  // Of everybody.
  std::mutex mutex_;
  encoding encoding_;
  std::deque<queued> queue_;
  std::size_t queued_bytes_ = 0;           // of memory, for queue_ and writing_
  std::optional<std::size_t> room_level_;  // somebody waits for the queue to fall to it
  std::size_t pending_bytes_ = 0;          // of large frames that somebody holds
  std::uint64_t credit_ = 0;
  bool reader_awake_ = false;  // a read_next() is posted or an async_read pending
  bool writer_awake_ = false;  // likewise for write_next()
  bool refusing_ = false;      // send() drops what it is given
  bool finished_ = false;
};

}  // namespace dsec::net

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
// called, once.
#include "net/ws_session.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/websocket/stream.hpp>
#include <deque>
#include <optional>

#include "base/text.hpp"
#include "net/request_policy.hpp"
#include "proto/peer.hpp"

namespace dsec::net {
namespace {

namespace beast = boost::beast;
namespace websocket = beast::websocket;
using beast::error_code;
using websocket::close_code;
using steady = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto close_patience = 5s;  // for the queue to drain, and again for the close handshake
// A peer that acknowledges nothing or keeps its window shut is given up by TCP itself (tcp(7)).
constexpr int unsent_limit_ms = 60'000;
constexpr std::size_t idle_buffer_bytes = 64U << 10U;  // kept by a connection between messages
constexpr std::size_t small_frame_bytes = 64U << 10U;  // not counted: credit bounds their number
constexpr std::size_t large_text_bytes = 256U << 10U;  // a millisecond or more to read or write
constexpr std::size_t frame_bytes = 256;               // of memory, beside the words of a small one
constexpr std::size_t max_reason_bytes = 123;          // RFC 6455, 5.5

// 4000 and up are for applications (RFC 6455, 7.4.2); docs/protocol.md.
constexpr auto key_revoked = static_cast<close_code>(4401);

/// Memory, not what goes over the wire: of small replies that is a few bytes each.
std::size_t held_by(const proto::frame& f) {
  return f.bytes().size() + frame_bytes;
}

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
          session_opened opened, const traffic& t)
      : hub_(std::move(h)),
        place_(std::move(place)),
        info_(std::move(info)),
        opened_(std::move(opened)),
        traffic_(t),
        strand_(w.get_executor()),
        stream_(std::in_place, std::move(w)),
        timer_(strand_),
        encoding_(t.fixed) {}

  void connect(const std::string& host, const std::string& path,
               std::function<void(base::error)> failed) {
    place_.attach(weak_from_this());
    configure();
    stream_->async_handshake(
        host, path,
        operation([host, path, failed = std::move(failed)](session& s, error_code problem) {
          if (problem) {
            failed({base::errc::unavailable,
                    host + path + " does not take the connection: " + problem.message(), 0});
          }
          s.accepted(problem);
        }));
  }

  void start(http_request upgrade) {
    place_.attach(weak_from_this());
    configure();
    choose_subprotocol(upgrade);
    auto request = std::make_shared<http_request>(std::move(upgrade));
    stream_->async_accept(
        *request, operation([request](session& s, error_code problem) { s.accepted(problem); }));
  }

  // --- from any thread ---

  void send(proto::frame f) override { queue(std::move(f), false); }

  void send_then_pack(proto::frame f) override { queue(std::move(f), true); }

  bool is_text() override {
    const std::lock_guard lock(mutex_);
    return encoding_ == encoding::text;
  }

  void queue(proto::frame f, bool pack_after) {
    std::deque<queued> dropped;  // a frame that goes may call dealt_with()
    const std::lock_guard lock(mutex_);
    if (refusing_) return;
    queued_bytes_ += held_by(f);
    if (queued_bytes_ > traffic_.queued) {
      refusing_ = true;
      dropped.swap(queue_);
      return on_strand([](session& s) {
        s.begin_close(close_code::try_again_later, "the client does not read its replies");
      });
    }
    queue_.push_back({std::move(f), encoding_});
    if (pack_after) encoding_ = encoding::packed;
    if (!std::exchange(writer_awake_, true)) on_strand([](session& s) { s.write_next(); });
  }

  bool queued_at_most(std::size_t level) override {
    const std::lock_guard lock(mutex_);
    if (queued_bytes_ <= level) return true;
    room_level_ = level;
    return false;
  }

  void grant(std::uint32_t n) override {
    const std::lock_guard lock(mutex_);
    credit_ += n;
    if (!std::exchange(reader_awake_, true)) on_strand([](session& s) { s.read_next(); });
  }

  void close(std::string reason) override {
    const std::lock_guard lock(mutex_);
    refusing_ = true;
    on_strand([reason = std::move(reason)](session& s) {
      s.begin_close(s.malformed_ ? close_code::bad_payload : close_code::normal, reason);
    });
  }

  void trust() override {
    const std::lock_guard lock(mutex_);
    on_strand([](session& s) { s.stream_->read_message_max(s.traffic_.message); });
  }

  void expel(std::string reason) override {
    const std::lock_guard lock(mutex_);
    refusing_ = true;
    on_strand([reason = std::move(reason)](session& s) { s.begin_close(key_revoked, reason); });
  }

  void wind_down() override {
    const std::lock_guard lock(mutex_);
    on_strand([](session& s) { s.begin_close(close_code::going_away, "the gateway is stopping"); });
  }

  void abort() override {
    const std::lock_guard lock(mutex_);
    on_strand([](session& s) { s.die(); });
  }

 private:
  void choose_subprotocol(const http_request& upgrade) {
    const beast::string_view offered = upgrade[beast::http::field::sec_websocket_protocol];
    std::string subprotocol(chosen_subprotocol({offered.data(), offered.size()}));
    stream_->set_option(websocket::stream_base::decorator(
        [subprotocol = std::move(subprotocol)](websocket::response_type& response) {
          response.set(beast::http::field::server, "dsecd");
          // A browser gives up when none of those that it has offered comes back.
          if (!subprotocol.empty())
            response.set(beast::http::field::sec_websocket_protocol, subprotocol);
        }));
  }

  void configure() {
    const int limit = unsent_limit_ms;
    // Best effort: without it a shut window is held until the queue overflows.
    ::setsockopt(stream_->next_layer().tcp_socket().native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT,
                 &limit, sizeof limit);
    // Beast's idle timer would be re-armed on every message and runs out while no credit lets us
    // read: watch() does its work.
    stream_->set_option(
        websocket::stream_base::timeout{close_patience, websocket::stream_base::none(), false});
    stream_->control_callback(
        [this](websocket::frame_type, beast::string_view) { heard_ = steady::now(); });
    stream_->binary(true);
    stream_->auto_fragment(false);
    stream_->read_message_max(traffic_.first_message);
  }

  void accepted(error_code problem) {
    if (problem || state_ == state::dead) return die();
    state_ = state::open;
    handler_ = opened_(shared_from_this(), std::move(info_));
    watch_in(traffic_.beat.ping);
  }

  // --- reader: one frame per credit, while the large ones not dealt with are few ---

  void read_next() {
    if (state_ != state::open) return;
    {
      const std::lock_guard lock(mutex_);
      reader_awake_ = credit_ > 0 && pending_bytes_ < traffic_.pending;
      if (!reader_awake_) return;
      --credit_;
    }
    reading_ = true;
    heard_ = steady::now();
    stream_->async_read(buffer_,
                        operation([](session& s, error_code problem) { s.received(problem); }));
  }

  void received(error_code problem) {
    reading_ = false;
    if (state_ != state::open) return;  // the close handshake goes on without us
    if (problem) return refused_by_beast(problem) ? linger() : die();
    const auto kind = encoding_of_message();
    if (!kind) {
      return begin_close(close_code::unknown_data,
                         "text and binary messages cannot alternate on one connection");
    }
    if (*kind == encoding::text && buffer_.size() > large_text_bytes) return decode_aside();
    take(decode(*kind, bytes_of(buffer_), traffic_.message));
  }

  static std::span<const std::byte> bytes_of(const beast::flat_buffer& buffer) {
    const auto bytes = buffer.cdata();
    return {static_cast<const std::byte*>(bytes.data()), bytes.size()};
  }

  void decode_aside() {
    auto text = std::make_shared<beast::flat_buffer>(std::exchange(buffer_, {}));
    auto frame = std::make_shared<base::result<proto::frame>>();
    aside([text, frame] { *frame = decode(encoding::text, bytes_of(*text)); },
          operation([frame](session& s, error_code) {
            if (s.state_ == state::open) s.take(std::move(*frame));
          }));
  }

  /// Runs `work` on the coders' thread, then `done` on ours.
  template <class Work, class Done>
  void aside(Work work, Done done) {
    // The context must not run out of work meanwhile, or `done` would never run.
    asio::post(hub_->coders, [back = asio::make_work_guard(strand_), work = std::move(work),
                              done = std::move(done)]() mutable {
      work();
      asio::post(back.get_executor(), [done = std::move(done)]() mutable { done(error_code()); });
    });
  }

  void take(base::result<proto::frame> frame) {
    if (!frame) {
      malformed_ = true;
      watch_in(close_patience);
      return handler_.malformed(std::move(frame).error());
    }
    buffer_.clear();
    if (buffer_.capacity() > idle_buffer_bytes) buffer_.shrink_to_fit();
    handler_.message(counted(*std::move(frame)));
    read_next();
  }

  /// Of the message that has come; nullopt when the connection began with the other kind.
  std::optional<encoding> encoding_of_message() {
    const bool text = stream_->got_text();
    const std::lock_guard lock(mutex_);
    if (encoding_ == encoding::undecided) {
      encoding_ = text ? encoding::text : encoding::binary;
      stream_->text(text);
    }
    if (text != (encoding_ == encoding::text)) return std::nullopt;
    return encoding_;
  }

  /// Says when nobody holds the frame any more.
  struct pending {
    std::weak_ptr<session> of;
    std::size_t bytes;
    pending(std::weak_ptr<session> s, std::size_t n) : of(std::move(s)), bytes(n) {}
    ~pending() {
      if (const auto s = of.lock()) s->dealt_with(bytes);
    }
    pending(const pending&) = delete;
    pending& operator=(const pending&) = delete;
  };

  proto::frame counted(proto::frame f) {
    const auto bytes = f.bytes().size();
    if (bytes < small_frame_bytes) return f;
    {
      const std::lock_guard lock(mutex_);
      pending_bytes_ += bytes;
    }
    return f.with(std::make_shared<const pending>(weak_from_this(), bytes));
  }

  // On any thread.
  void dealt_with(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    pending_bytes_ -= bytes;
    if (credit_ > 0 && !std::exchange(reader_awake_, true))
      on_strand([](session& s) { s.read_next(); });
  }

  // --- writer: one frame at a time, held meanwhile ---

  void write_next() {
    queued next;
    {
      const std::lock_guard lock(mutex_);
      writer_awake_ = !queue_.empty();
      if (writer_awake_) {
        next = std::move(queue_.front());
        queue_.pop_front();
      }
    }
    if (next.frame.empty()) {
      if (state_ == state::closing) shake_hands();
      return;
    }
    if (next.as == encoding::text && next.frame.bytes().size() > large_text_bytes)
      return encode_aside(std::move(next.frame));
    write(outgoing(next.as, std::move(next.frame)));
  }

  void encode_aside(proto::frame f) {
    auto text = std::make_shared<outgoing>();
    aside([text, f = std::move(f)]() mutable { *text = outgoing(encoding::text, std::move(f)); },
          operation([text](session& s, error_code) {
            if (s.state_ != state::dead) s.write(std::move(*text));
          }));
  }

  void write(outgoing next) {
    writing_ = std::move(next);
    const auto bytes = writing_.bytes();
    stream_->async_write(asio::buffer(bytes.data(), bytes.size()),
                         operation([](session& s, error_code problem) { s.written(problem); }));
  }

  void written(error_code problem) {
    bool room = false;
    {
      const std::lock_guard lock(mutex_);
      queued_bytes_ -= held_by(writing_.frame());
      room = room_level_ && queued_bytes_ <= *room_level_;
      if (room) room_level_.reset();
    }
    writing_ = {};
    if (problem) return die();
    if (room && handler_.room) handler_.room();
    write_next();
  }

  // --- the end ---

  void begin_close(close_code code, std::string_view why) {
    if (state_ == state::opening) return die();
    if (state_ != state::open) return;
    state_ = state::closing;
    const auto reason = base::shown(why, max_reason_bytes);
    reason_ = {code, beast::string_view(reason.data(), reason.size())};
    watch_in(close_patience);
    bool writer_sleeps = false;
    {
      const std::lock_guard lock(mutex_);
      refusing_ = true;
      writer_sleeps = !std::exchange(writer_awake_, true);
    }
    if (writer_sleeps) write_next();
  }

  void shake_hands() {
    stream_->async_close(reason_, operation([](session& s, error_code) { s.die(); }));
  }

  // Beast has sent a close frame that says what was wrong with the client's frames, and nothing
  // will be read of them.
  static bool refused_by_beast(error_code problem) {
    return problem != websocket::error::closed &&
           problem.category() == websocket::make_error_code(websocket::error::closed).category();
  }

  // Closing at once with unread bytes in the socket would be a reset that overtakes the close frame
  // (RFC 9112, 9.6).
  void linger() {
    state_ = state::closing;
    watch_in(close_patience);
    drain();
  }

  void drain() {
    buffer_.clear();
    const auto enough = buffer_.prepare(idle_buffer_bytes);
    stream_->next_layer().tcp_socket().async_read_some(
        enough, operation([](session& s, error_code problem) {
          if (problem) return s.die();
          if (s.state_ == state::closing) s.drain();
        }));
  }

  void die() {
    if (state_ == state::dead) return;
    state_ = state::dead;
    std::deque<queued> dropped;
    {
      const std::lock_guard lock(mutex_);
      refusing_ = true;
      dropped.swap(queue_);
    }
    timer_.cancel();
    stream_->next_layer().close();
  }

  void settle() {
    if (state_ != state::dead || pending_ > 0) return;
    {
      const std::lock_guard lock(mutex_);
      finished_ = true;
    }
    // An actor may hold this object for long: it keeps no socket and no timer.
    stream_.reset();
    place_.leave();
    if (auto last_call = std::exchange(handler_, {}).closed) last_call();
  }

  // --- time ---

  void watch_in(steady::duration delay) {
    timer_.expires_after(delay);
    timer_.async_wait(operation([](session& s, error_code cancelled) {
      // A wait that expired just before it was set anew arrives all the same.
      if (!cancelled && steady::now() >= s.timer_.expiry()) s.watch();
    }));
  }

  void watch() {
    if (state_ == state::closing) return die();
    if (state_ != state::open) return;
    if (malformed_) return begin_close(close_code::bad_payload, "not a message");
    const auto& beat = traffic_.beat;
    const auto now = steady::now();
    if (alive()) lived_ = now;
    const auto silence = now - std::max(heard_, lived_);
    if (reading_ && (silence >= beat.silence || now - heard_ >= beat.message)) return die();
    // While nothing is read no answer is seen, but TCP finds out whether it arrives.
    if ((!reading_ || silence >= beat.ping) && !pinging_) {
      pinging_ = true;
      stream_->async_ping({}, operation([](session& s, error_code problem) {
                            s.pinging_ = false;
                            if (problem && s.state_ == state::open) s.die();
                          }));
    }
    watch_in(beat.ping);
  }

  // A message can take longer than any ping may: no pong comes in the middle of one, and none while
  // the peer still takes in what was sent before the ping.
  bool alive() {
    const bool reads = buffer_.size() != seen_bytes_;
    seen_bytes_ = buffer_.size();
    if (reads || writing_.empty()) return reads;
    ::tcp_info info{};
    ::socklen_t size = sizeof info;
    const int fd = stream_->next_layer().tcp_socket().native_handle();
    return ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
           std::chrono::milliseconds(info.tcpi_last_ack_recv) < traffic_.beat.ping;
  }

  const std::shared_ptr<hub> hub_;
  hub_place place_;
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

}  // namespace

traffic client_traffic(const heartbeat& beat) {
  return {proto::max_message_bytes, proto::max_message_bytes, proto::max_pending_bytes,
          proto::max_queued_bytes,  encoding::undecided,      beat};
}

const traffic peer_traffic{proto::max_peer_hello_bytes,
                           proto::max_peer_message_bytes,
                           proto::max_peer_queued_bytes,
                           proto::max_peer_queued_bytes,
                           encoding::binary,
                           {2000ms, 8000ms, 300'000ms}};

void serve_websocket(std::shared_ptr<hub> h, wire w, hub_place place, http_request upgrade,
                     connection_info info, session_opened opened, const traffic& t) {
  auto made = std::make_shared<session>(std::move(h), std::move(w), std::move(place),
                                        std::move(info), std::move(opened), t);
  made->start(std::move(upgrade));
}

void open_websocket(std::shared_ptr<hub> h, wire w, hub_place place, const std::string& host,
                    const std::string& path, connection_info info, session_opened opened,
                    std::function<void(base::error)> failed, const traffic& t) {
  auto made = std::make_shared<session>(std::move(h), std::move(w), std::move(place),
                                        std::move(info), std::move(opened), t);
  made->connect(host, path, std::move(failed));
}

}  // namespace dsec::net

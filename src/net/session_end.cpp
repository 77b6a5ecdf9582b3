// All ways to the end of a session.
#include "base/text.hpp"
#include "net/session.hpp"

namespace dsec::net {
namespace {

constexpr std::size_t max_reason_bytes = 123;  // RFC 6455, 5.5

// 4000 and up are for applications (RFC 6455, 7.4.2); docs/protocol.md.
constexpr auto key_revoked = static_cast<close_code>(4401);

}  // namespace

void session::close(std::string reason) {
  const std::lock_guard lock(mutex_);
  refusing_ = true;
  on_strand([reason = std::move(reason)](session& s) {
    s.begin_close(s.malformed_ ? close_code::bad_payload : close_code::normal, reason);
  });
}

void session::leave(std::string reason) {
  const std::lock_guard lock(mutex_);
  refusing_ = true;
  on_strand(
      [reason = std::move(reason)](session& s) { s.begin_close(close_code::going_away, reason); });
}

void session::expel(std::string reason) {
  const std::lock_guard lock(mutex_);
  refusing_ = true;
  on_strand([reason = std::move(reason)](session& s) { s.begin_close(key_revoked, reason); });
}

void session::wind_down() {
  const std::lock_guard lock(mutex_);
  on_strand([](session& s) { s.begin_close(close_code::going_away, "the gateway is stopping"); });
}

void session::abort() {
  const std::lock_guard lock(mutex_);
  on_strand([](session& s) { s.die(); });
}

void session::begin_close(close_code code, std::string_view why) {
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

void session::shake_hands() {
  stream_->async_close(reason_, operation([](session& s, error_code) { s.die(); }));
}

// Closing at once with unread bytes in the socket would be a reset that overtakes the close frame
// (RFC 9112, 9.6).
void session::linger() {
  state_ = state::closing;
  watch_in(close_patience);
  drain();
}

void session::drain() {
  buffer_.clear();
  const auto enough = buffer_.prepare(idle_buffer_bytes);
  stream_->next_layer().tcp_socket().async_read_some(enough,
                                                     operation([](session& s, error_code problem) {
                                                       if (problem) return s.die();
                                                       if (s.state_ == state::closing) s.drain();
                                                     }));
}

void session::die() {
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

void session::settle() {
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

}  // namespace dsec::net

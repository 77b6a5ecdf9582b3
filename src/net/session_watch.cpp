// Signs of life: who gives none is given up.
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>

#include "net/session.hpp"

namespace dsec::net {

void session::watch_in(steady::duration delay) {
  timer_.expires_after(delay);
  timer_.async_wait(operation([](session& s, error_code cancelled) {
    // A wait that expired just before it was set anew arrives all the same.
    if (!cancelled && steady::now() >= s.timer_.expiry()) s.watch();
  }));
}

void session::watch() {
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
bool session::alive() {
  const bool reads = buffer_.size() != seen_bytes_;
  seen_bytes_ = buffer_.size();
  if (reads || writing_.empty()) return reads;
  ::tcp_info info{};
  ::socklen_t size = sizeof info;
  const int fd = stream_->next_layer().tcp_socket().native_handle();
  return ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) == 0 &&
         std::chrono::milliseconds(info.tcpi_last_ack_recv) < traffic_.beat.ping;
}

}  // namespace dsec::net

// The writer of a session.
#include <boost/asio/buffer.hpp>

#include "net/session.hpp"

namespace dsec::net {
namespace {

constexpr std::size_t frame_bytes = 256;  // of memory, beside the words of a small one

/// Memory, not what goes over the wire: of small replies that is a few bytes each.
std::size_t held_by(const proto::frame& f) {
  return f.bytes().size() + frame_bytes;
}

}  // namespace

void session::send(proto::frame f) {
  queue(std::move(f), false);
}

void session::send_then_pack(proto::frame f) {
  queue(std::move(f), true);
}

void session::queue(proto::frame f, bool pack_after) {
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

bool session::queued_at_most(std::size_t level) {
  const std::lock_guard lock(mutex_);
  if (queued_bytes_ <= level) return true;
  room_level_ = level;
  return false;
}

void session::write_next() {
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

void session::encode_aside(proto::frame f) {
  auto text = std::make_shared<outgoing>();
  aside([text, f = std::move(f)]() mutable { *text = outgoing(encoding::text, std::move(f)); },
        operation([text](session& s, error_code) {
          if (s.state_ != state::dead) s.write(std::move(*text));
        }));
}

void session::write(outgoing next) {
  writing_ = std::move(next);
  const auto bytes = writing_.bytes();
  stream_->async_write(asio::buffer(bytes.data(), bytes.size()),
                       operation([](session& s, error_code problem) { s.written(problem); }));
}

void session::written(error_code problem) {
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

}  // namespace dsec::net

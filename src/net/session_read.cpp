// The reader of a session.
#include <span>

#include "net/session.hpp"

namespace dsec::net {
namespace {

constexpr std::size_t small_frame_bytes = 64U << 10U;  // not counted: credit bounds their number

std::span<const std::byte> bytes_of(const beast::flat_buffer& buffer) {
  const auto bytes = buffer.cdata();
  return {static_cast<const std::byte*>(bytes.data()), bytes.size()};
}

// Beast has sent a close frame that says what was wrong with the client's frames, and nothing
// will be read of them.
bool refused_by_beast(error_code problem) {
  return problem != websocket::error::closed &&
         problem.category() == websocket::make_error_code(websocket::error::closed).category();
}

}  // namespace

void session::grant(std::uint32_t n) {
  const std::lock_guard lock(mutex_);
  credit_ += n;
  if (!std::exchange(reader_awake_, true)) on_strand([](session& s) { s.read_next(); });
}

void session::read_next() {
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

void session::received(error_code problem) {
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

void session::decode_aside() {
  auto text = std::make_shared<beast::flat_buffer>(std::exchange(buffer_, {}));
  auto frame = std::make_shared<base::result<proto::frame>>();
  aside([text, frame] { *frame = decode(encoding::text, bytes_of(*text)); },
        operation([frame](session& s, error_code) {
          if (s.state_ == state::open) s.take(std::move(*frame));
        }));
}

void session::take(base::result<proto::frame> frame) {
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

std::optional<encoding> session::encoding_of_message() {
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
struct session::pending {
  std::weak_ptr<session> of;
  std::size_t bytes;
  pending(std::weak_ptr<session> s, std::size_t n) : of(std::move(s)), bytes(n) {}
  ~pending() {
    if (const auto s = of.lock()) s->dealt_with(bytes);
  }
  pending(const pending&) = delete;
  pending& operator=(const pending&) = delete;
};

proto::frame session::counted(proto::frame f) {
  const auto bytes = f.bytes().size();
  if (bytes < small_frame_bytes) return f;
  {
    const std::lock_guard lock(mutex_);
    pending_bytes_ += bytes;
  }
  return f.with(std::make_shared<const pending>(weak_from_this(), bytes));
}

void session::dealt_with(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  pending_bytes_ -= bytes;
  if (credit_ > 0 && !std::exchange(reader_awake_, true))
    on_strand([](session& s) { s.read_next(); });
}

}  // namespace dsec::net

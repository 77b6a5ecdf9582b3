// The encodings of a connection: binary messages carry Cap'n Proto as it is, or packed when that
// was agreed in hello, text messages the same as JSON (proto/json.hpp). The client's first message
// chooses between binary and text; the other kind is refused afterwards. Internal to src/net; pure.
#pragma once

#include <span>
#include <string>
#include <utility>

#include "proto/frame.hpp"

namespace dsec::net {

enum class encoding { undecided, binary, packed, text };

/// A request from the bytes of one WebSocket message; binary, any message of at most `most` bytes.
base::result<proto::frame> decode(encoding e, std::span<const std::byte> message,
                                  std::size_t most = proto::max_message_bytes);

/// A reply on its way out, with the bytes that stand for it.
class outgoing {
 public:
  outgoing() = default;
  /// One that is too large as text becomes an error that says so.
  outgoing(encoding e, proto::frame reply);

  [[nodiscard]] bool empty() const { return frame_.empty(); }
  [[nodiscard]] const proto::frame& frame() const { return frame_; }
  [[nodiscard]] std::span<const std::byte> bytes() const {
    return coded_.empty() ? frame_.bytes() : std::as_bytes(std::span(coded_));
  }

 private:
  proto::frame frame_;
  std::string coded_;  // unless it goes as it is
};

}  // namespace dsec::net

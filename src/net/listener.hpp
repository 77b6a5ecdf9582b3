// The gateway's door: HTTP and WebSocket on one port. Beast-free header; knows nothing of actors.
// The listener runs its own I/O threads. Callbacks are called on them and must only hand over;
// every method of ws_session and listener is thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "auth/gate.hpp"
#include "base/config.hpp"
#include "base/result.hpp"
#include "proto/frame.hpp"

namespace dsec::net {

/// One client connection. Frames are read one per granted credit, and none while the large ones
/// that anybody still holds are over max_pending_bytes, so that a slow actor never grows memory.
class ws_session {
 public:
  virtual ~ws_session() = default;
  /// Queues a frame. Over max_queued_bytes, counted as memory, the connection is closed.
  virtual void send(proto::frame f) = 0;
  /// The same; everything after it, both ways, is in Cap'n Proto's packed encoding. Not for text.
  virtual void send_then_pack(proto::frame f) = 0;
  /// Whether the client speaks text. Known from its first message on.
  [[nodiscard]] virtual bool is_text() = 0;
  /// Whether at most `level` bytes are queued or being written. If not, the handler's `room` is
  /// called, once, as soon as that is so.
  virtual bool queued_at_most(std::size_t level) = 0;
  /// Allows `n` more frames to be read.
  virtual void grant(std::uint32_t n) = 0;
  /// Sends what is queued, then closes; after a malformed frame with a code that says so.
  /// Idempotent.
  virtual void close(std::string reason) = 0;
  /// The same, with the close code that says that it is the gateway that goes: the client may come
  /// back at once.
  virtual void leave(std::string reason) = 0;
  /// Of a peer: it has proven who it is, and may send messages of full size.
  virtual void trust() {}
  /// The same, with the close code that says that the API key is good no longer.
  virtual void expel(std::string reason) = 0;
};

struct session_handler {
  std::function<void(proto::frame)> message;  // one frame, structurally valid, consumes one credit
  // A frame that is none. Nothing is read after it, and the session waits a moment for an answer
  // and close().
  std::function<void(base::error)> malformed;
  std::function<void()> room;    // what queued_at_most() said no to
  std::function<void()> closed;  // last call
};

struct connection_info {
  std::string principal;    // whom the API key belongs to
  std::string peer;         // address:port
  std::string key_id = {};  // of the API key
};

struct http_answer {
  unsigned status = 200;
  std::string content_type = "application/json";
  std::string body;
};
/// The answer to whoever asks without being trusted for what not everybody may see.
http_answer needs_key();

struct http_get {
  std::string_view path;
  bool trusted = false;  // it comes from this machine, or with an API key
};

struct listener_callbacks {
  /// Asked for every upgrade and ticket.
  std::shared_ptr<auth::gate> gate;
  /// A WebSocket at /v1/ws was accepted. Nothing is read before the first grant(). Empty: there is
  /// no such path.
  std::function<session_handler(std::shared_ptr<ws_session>, connection_info)> opened;
  /// GET of any other path; nullopt = 404. Used for /healthz, /readyz and /metrics.
  std::function<std::optional<http_answer>(const http_get&)> get;
  /// The same as `opened` at /v1/peer, without a key: a worker proves itself in its messages, which
  /// are small until trust(). Empty: there is no such path.
  std::function<session_handler(std::shared_ptr<ws_session>, connection_info)> peer_opened{};
};

/// How soon a client that is gone without a word is given up: leases count from then.
struct heartbeat {
  std::chrono::milliseconds ping{10'000};      // of silence, then the client is asked for a sign
  std::chrono::milliseconds silence{30'000};   // no sign of life
  std::chrono::milliseconds message{300'000};  // signs of life, but nothing whole
  std::chrono::milliseconds exchange{10'000};  // a TLS handshake, a request on its way, an answer
};

class listener {
 public:
  /// Binds and starts serving. errc::io with the address when the port is taken; a certificate that
  /// cannot be used is an error that names the file. A link that comes over TLS must show a
  /// certificate of `peer_ca`, one without TLS must come from this host.
  static base::result<std::unique_ptr<listener>> start(const base::gateway_config& config,
                                                       listener_callbacks callbacks,
                                                       const heartbeat& beat = {},
                                                       const std::filesystem::path& peer_ca = {});
  virtual ~listener() = default;
  [[nodiscard]] virtual std::uint16_t port() const = 0;
  /// Reads certificate, key and `peer_ca` again. New connections get them once what this returns
  /// was called, which cannot fail.
  virtual base::result<std::function<void()>> load_certificate() = 0;
  /// Of new connections.
  virtual void set_max_connections(std::uint32_t n) = 0;
  /// Stops accepting, closes all sessions, joins the threads.
  virtual void stop() = 0;
};

}  // namespace dsec::net

// A client that can misbehave: HTTP text and hand-made WebSocket frames over one blocking loopback
// socket. One thread per object. Reads give up after `patience`; sending to a closed socket is not
// an error here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace dsec::net::test {

struct http_response {
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
};

struct ws_frame {
  enum opcode : std::uint8_t { text = 1, binary = 2, close = 8, ping = 9, pong = 10 };
  std::uint8_t op = 0;
  std::string payload;

  /// Of a close frame.
  [[nodiscard]] int close_code() const;
  [[nodiscard]] std::string close_reason() const { return payload.substr(2); }
};

std::string frame_bytes(std::uint8_t op, std::string_view payload, bool final = true);

class raw_client {
 public:
  static constexpr int patience_seconds = 10;

  explicit raw_client(std::uint16_t port, int receive_buffer = 0);
  ~raw_client();
  raw_client(const raw_client&) = delete;
  raw_client& operator=(const raw_client&) = delete;

  void send(std::string_view bytes);
  /// nullopt when the connection ended first.
  std::optional<http_response> response();
  /// "GET path" with a right Host and further header lines.
  http_response get(std::string_view path, std::string_view header_lines = {});

  /// The upgrade with this key; the answer's status.
  int upgrade(std::string_view key, std::string_view header_lines = {});
  void send_frame(std::uint8_t op, std::string_view payload, bool final = true);
  /// Only the header of a frame that announces `length` bytes.
  void send_frame_header(std::uint8_t op, std::uint64_t length);
  /// nullopt when the connection ended or nothing came in time.
  std::optional<ws_frame> frame();
  /// Skips what comes before it.
  std::optional<ws_frame> close_frame();

  [[nodiscard]] bool closed_by_peer();
  void hang_up();
  [[nodiscard]] std::uint16_t port() const { return port_; }
  /// Sends what fits until `limit` bytes or the window shuts for `patience_ms`; bytes taken.
  std::size_t flood(std::string_view piece, std::size_t limit, int patience_ms);

 private:
  bool fill();
  std::optional<std::string> take(std::size_t n);

  std::uint16_t port_;
  int fd_;
  std::string in_;
};

}  // namespace dsec::net::test

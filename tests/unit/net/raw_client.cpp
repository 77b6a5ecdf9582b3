// See raw_client.hpp.
#include "unit/net/raw_client.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstdlib>

namespace dsec::net::test {
namespace {

constexpr std::string_view mask = "\x11\x22\x33\x44";

std::string masked(std::string_view payload) {
  std::string out(payload);
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<char>(out[i] ^ mask[i % 4]);
  return out;
}

std::string frame_header(std::uint8_t op, std::uint64_t length, bool final) {
  std::string out(1, static_cast<char>((final ? 0x80 : 0) | op));
  const auto big_endian = [&](int bytes) {
    for (int i = bytes - 1; i >= 0; --i) out += static_cast<char>(length >> (8 * i));
  };
  if (length < 126) {
    out += static_cast<char>(0x80U | length);
  } else if (length < 65536) {
    out += static_cast<char>(0x80U | 126U);
    big_endian(2);
  } else {
    out += static_cast<char>(0x80U | 127U);
    big_endian(8);
  }
  out += mask;
  return out;
}

}  // namespace

std::string frame_bytes(std::uint8_t op, std::string_view payload, bool final) {
  return frame_header(op, payload.size(), final) + masked(payload);
}

int ws_frame::close_code() const {
  REQUIRE(payload.size() >= 2);
  return static_cast<unsigned char>(payload[0]) << 8 | static_cast<unsigned char>(payload[1]);
}

raw_client::raw_client(std::uint16_t port, int receive_buffer)
    : port_(port), fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  REQUIRE(fd_ >= 0);
  // Must precede connect(2), which fixes the window's scale.
  if (receive_buffer > 0) {
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
  }
  const timeval patience{patience_seconds, 0};
  ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  const int on = 1;
  ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0);
}

raw_client::~raw_client() {
  ::close(fd_);
}

void raw_client::send(std::string_view bytes) {
  while (!bytes.empty()) {
    const auto n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return;
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

bool raw_client::fill() {
  std::array<char, 65536> piece;
  const auto n = ::recv(fd_, piece.data(), piece.size(), 0);
  if (n <= 0) return false;
  in_.append(piece.data(), static_cast<std::size_t>(n));
  return true;
}

std::optional<std::string> raw_client::take(std::size_t n) {
  while (in_.size() < n) {
    if (!fill()) return std::nullopt;
  }
  std::string out = in_.substr(0, n);
  in_.erase(0, n);
  return out;
}

std::optional<http_response> raw_client::response() {
  std::size_t end = 0;
  while ((end = in_.find("\r\n\r\n")) == std::string::npos) {
    if (!fill()) return std::nullopt;
  }
  const std::string head = *take(end + 4);
  http_response out;
  out.status = std::atoi(head.c_str() + head.find(' '));
  for (auto at = head.find("\r\n") + 2; at + 2 < head.size(); at = head.find("\r\n", at) + 2) {
    const auto colon = head.find(':', at);
    std::string name = head.substr(at, colon - at);
    std::transform(name.begin(), name.end(), name.begin(), ::tolower);
    out.headers[name] = head.substr(colon + 2, head.find("\r\n", at) - colon - 2);
  }
  if (const auto length = out.headers.find("content-length"); length != out.headers.end()) {
    auto body = take(std::stoul(length->second));
    if (!body) return std::nullopt;
    out.body = std::move(*body);
  }
  return out;
}

http_response raw_client::get(std::string_view path, std::string_view header_lines) {
  send("GET " + std::string(path) + " HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port_) +
       "\r\n" + std::string(header_lines) + "\r\n");
  return response().value_or(http_response{});
}

int raw_client::upgrade(std::string_view key, std::string_view header_lines) {
  std::string lines =
      "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
      "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
  if (!key.empty()) lines += "Authorization: Bearer " + std::string(key) + "\r\n";
  return get("/v1/ws", lines + std::string(header_lines)).status;
}

void raw_client::send_frame(std::uint8_t op, std::string_view payload, bool final) {
  send(frame_bytes(op, payload, final));
}

void raw_client::send_frame_header(std::uint8_t op, std::uint64_t length) {
  send(frame_header(op, length, true));
}

std::optional<ws_frame> raw_client::frame() {
  const auto head = take(2);
  if (!head) return std::nullopt;
  ws_frame out;
  out.op = static_cast<std::uint8_t>((*head)[0] & 0x0F);
  std::uint64_t length = static_cast<unsigned char>((*head)[1]);
  if (length >= 126) {
    const auto more = take(length == 126 ? 2 : 8);
    if (!more) return std::nullopt;
    length = 0;
    for (const char c : *more) length = length << 8 | static_cast<unsigned char>(c);
  }
  auto payload = take(length);
  if (!payload) return std::nullopt;
  out.payload = std::move(*payload);
  return out;
}

std::optional<ws_frame> raw_client::close_frame() {
  while (auto f = frame()) {
    if (f->op == ws_frame::close) return f;
  }
  return std::nullopt;
}

bool raw_client::closed_by_peer() {
  errno = 0;
  while (fill()) {
  }
  return errno == 0 || errno == ECONNRESET;
}

void raw_client::hang_up() {
  ::shutdown(fd_, SHUT_RDWR);
}

std::size_t raw_client::flood(std::string_view piece, std::size_t limit, int patience_ms) {
  std::size_t sent = 0;
  while (sent < limit) {
    pollfd writable{fd_, POLLOUT, 0};
    if (::poll(&writable, 1, patience_ms) <= 0) break;
    const auto n = ::send(fd_, piece.data(), piece.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n <= 0) break;
    sent += static_cast<std::size_t>(n);
  }
  return sent;
}

}  // namespace dsec::net::test

#include "backends/container/aether_frames.hpp"

#include <algorithm>
#include <cstring>

#include "base/ids.hpp"
#include "guest/aether/decode.hpp"

namespace dsec::container {
namespace {

using base::errc;
using base::fail;
using base::result;
using guest::header;
using guest::msg;

template <class Body>
frame_bytes encode(msg type, const Body* body, std::string_view tail = {}) {
  const std::size_t body_size = body == nullptr ? 0 : sizeof(Body);
  frame_bytes out(sizeof(header) + body_size + tail.size());
  const header h{static_cast<std::uint16_t>(type), 0, static_cast<std::uint32_t>(out.size()), 0, 0};
  std::memcpy(out.data(), &h, sizeof h);
  if (body != nullptr) std::memcpy(out.data() + sizeof h, body, body_size);
  if (!tail.empty()) std::memcpy(out.data() + sizeof h + body_size, tail.data(), tail.size());
  return out;
}

void put_id(char (&field)[guest::max_command_id], std::string_view id) {
  std::memcpy(field, id.data(), std::min(id.size(), sizeof field));
}

/// Appends with a terminator; a NUL inside would shift every later string.
result<void> put_string(std::string& strings, const std::string& text, const char* what) {
  if (text.find('\0') != std::string::npos)
    return fail(errc::invalid_argument, std::string(what) + " contains a NUL byte");
  strings += text;
  strings += '\0';
  if (strings.size() > guest::max_strings)
    return fail(errc::too_large, "arguments and environment are larger than 8 MiB");
  return {};
}

result<std::string> join_strings(const backends::exec_spec& spec) {
  std::string strings;
  for (const auto& a : spec.argv) DSEC_CHECK(put_string(strings, a, "an argument"));
  for (const auto& e : spec.env) DSEC_CHECK(put_string(strings, e, "an environment variable"));
  DSEC_CHECK(put_string(strings, spec.cwd, "the working directory"));
  DSEC_CHECK(put_string(strings, spec.user, "the user"));
  return strings;
}

result<std::string> take_id(const char (&field)[guest::max_command_id]) {
  const auto* end = std::find(field, field + sizeof field, '\0');
  std::string id(field, end);
  if (!base::is_valid_command_id(id) ||
      std::any_of(end, field + sizeof field, [](char c) { return c != 0; }))
    return fail(errc::protocol, "aether named a malformed command id");
  return id;
}

template <class Body>
result<Body> take_body(std::span<const std::byte> datagram) {
  if (datagram.size() != sizeof(header) + sizeof(Body))
    return fail(errc::protocol, "aether sent a datagram of the wrong size");
  Body body;
  std::memcpy(&body, datagram.data() + sizeof(header), sizeof body);
  return body;
}

result<decltype(incoming::body)> decode_body(msg type, std::span<const std::byte> d) {
  switch (type) {
    case msg::pong:
      return frame_pong{};
    case msg::degraded:
      return frame_degraded{};
    case msg::hello: {
      DSEC_TRY(const auto body, take_body<guest::hello_body>(d));
      return frame_hello{body};
    }
    case msg::started: {
      DSEC_TRY(const auto body, take_body<guest::started_body>(d));
      DSEC_TRY(auto id, take_id(body.id));
      return frame_started{std::move(id), body.start_realtime_ns};
    }
    case msg::failed: {
      DSEC_TRY(const auto body, take_body<guest::failed_body>(d));
      DSEC_TRY(auto id, take_id(body.id));
      return frame_failed{std::move(id), static_cast<guest::failure>(body.failure), body.sys_errno};
    }
    case msg::exited: {
      DSEC_TRY(const auto body, take_body<guest::exited_body>(d));
      DSEC_TRY(auto id, take_id(body.id));
      return frame_exited{std::move(id), body};
    }
    case msg::unknown: {
      DSEC_TRY(const auto body, take_body<guest::kill_body>(d));
      DSEC_TRY(auto id, take_id(body.id));
      return frame_unknown{std::move(id)};
    }
    default:
      return fail(errc::protocol, "aether sent a message of unknown type");
  }
}

}  // namespace

result<exec_frame> encode_exec(const backends::exec_spec& spec, std::uint64_t spool_cap) {
  DSEC_TRY(auto strings, join_strings(spec));
  guest::exec_body body{};
  put_id(body.id, spec.id);
  body.kind = static_cast<std::uint32_t>(spec.kind);
  if (spec.stdin_data.empty()) body.flags = guest::exec_no_input;
  body.timeout_ms = static_cast<std::uint64_t>(spec.timeout.count());
  body.spool_cap = spool_cap;
  body.offset = spec.offset;
  body.length = spec.length;
  body.mode = spec.mode;
  body.argc = static_cast<std::uint32_t>(spec.argv.size());
  body.envc = static_cast<std::uint32_t>(spec.env.size());
  body.strings_length = static_cast<std::uint32_t>(strings.size());
  exec_frame frame;
  if (strings.size() > guest::max_inline_strings) {
    body.payload_fd = 1;
    frame.payload = std::move(strings);
    strings.clear();
  }
  frame.datagram = encode(msg::exec, &body, strings);
  return frame;
}

frame_bytes encode_hello(std::uint32_t last_seq) {
  const guest::hello_body body{guest::channel_version, last_seq, 0};
  return encode(msg::hello, &body);
}

frame_bytes encode_plain(msg type) {
  return encode<guest::kill_body>(type, nullptr);
}

frame_bytes encode_id(msg type, std::string_view command) {
  guest::kill_body body{};
  put_id(body.id, command);
  return encode(type, &body);
}

void stamp(std::span<std::byte> datagram, sequence& numbers) {
  header h;
  std::memcpy(&h, datagram.data(), sizeof h);
  const auto type = static_cast<msg>(h.type);
  if (type != msg::ping) h.seq = ++numbers.sent;
  h.ack = numbers.received;
  std::memcpy(datagram.data(), &h, sizeof h);
}

result<incoming> decode(std::span<const std::byte> datagram) {
  incoming in{};
  if (datagram.size() < sizeof in.header)
    return fail(errc::protocol, "aether sent a datagram without a header");
  std::memcpy(&in.header, datagram.data(), sizeof in.header);
  if (in.header.length != datagram.size() || in.header.reserved != 0)
    return fail(errc::protocol, "aether sent a datagram with a wrong header");
  DSEC_TRY(in.body, decode_body(static_cast<msg>(in.header.type), datagram));
  return in;
}

}  // namespace dsec::container

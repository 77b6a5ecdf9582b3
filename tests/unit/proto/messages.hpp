// Hand-made Cap'n Proto bytes for tests: what a well-behaved library would never send.
#pragma once

#include <capnp/message.h>

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "proto/client.capnp.h"
#include "proto/frame.hpp"

namespace dsec::proto::test {

using bytes = std::vector<std::byte>;

inline bytes words32(std::initializer_list<std::uint32_t> words) {
  bytes out(words.size() * 4);
  std::memcpy(out.data(), std::data(words), out.size());
  return out;
}

/// One segment of these 64-bit words behind a right segment table.
inline bytes message(const std::vector<std::uint64_t>& words) {
  bytes out = words32({0, static_cast<std::uint32_t>(words.size())});
  const std::size_t head = out.size();
  out.resize(head + words.size() * 8);
  std::memcpy(out.data() + head, words.data(), words.size() * 8);
  return out;
}

/// A struct pointer (encoding spec, "Structs"): `offset` words from its end to a struct of that
/// many words.
constexpr std::uint64_t struct_pointer(std::int32_t offset, std::uint16_t data,
                                       std::uint16_t pointers) {
  return static_cast<std::uint32_t>(offset) << 2U | static_cast<std::uint64_t>(data) << 32U |
         static_cast<std::uint64_t>(pointers) << 48U;
}

inline bytes bytes_of(capnp::MessageBuilder& builder) {
  const auto f = frame::from_builder(builder);
  return {f.bytes().begin(), f.bytes().end()};
}

}  // namespace dsec::proto::test

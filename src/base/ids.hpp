// Identifiers. A sandbox id is `<edge>-<16 random base-32 characters>`: lower-case letters, digits
// and '-', at most 63 characters, so that it is a host name; the part before the last '-' names the
// edge that owns it. Any thread; randomness is getrandom(2).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace dsec::base {

inline constexpr std::size_t max_id_length = 63;

/// [a-z0-9] with '-' inside, 1..63 characters.
bool is_valid_id(std::string_view id);

std::string new_sandbox_id(std::string_view edge);

/// The edge named by a sandbox id.
result<std::string> edge_of(std::string_view sandbox_id);

/// `bits`/5 random characters of [a-z2-7]; used for ids, trace ids and API keys.
std::string random_token(std::size_t bits);

/// Command ids are chosen by the client: [A-Za-z0-9._-], 1..64 characters.
bool is_valid_command_id(std::string_view id);

/// FNV-1a, 64 bits: the same in every release, so that it can be stored in place of an id.
constexpr std::uint64_t id_hash(std::string_view id) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
  return hash;
}

}  // namespace dsec::base
